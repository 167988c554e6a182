// Package logged writes a log as a manager does, at the times of a test.
package logged

import (
	"io"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

type clock func() time.Time

func (c clock) Now() time.Time                       { return c() }
func (c clock) NewTicker(time.Duration) *time.Ticker { panic("no line waits") }

// JSON returns a logger of lines from that level on.
func JSON(out io.Writer, level zapcore.Level, now func() time.Time) logr.Logger {
	encoding := zap.NewProductionEncoderConfig()
	encoding.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	core := zapcore.NewCore(zapcore.NewJSONEncoder(encoding), zapcore.Lock(zapcore.AddSync(out)), level)
	return zapr.NewLogger(zap.New(core, zap.WithClock(clock(now))))
}
