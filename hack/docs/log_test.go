package main

import (
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// progress matches a message that reads as if the work went well: "serving the page".
var progress = regexp.MustCompile(`^"[A-Za-z]{2,}ing\b`)

// TestErrorsInTheLogShowAFailure: an error in the log is found by grep fail, and does not read as progress.
func TestErrorsInTheLogShowAFailure(t *testing.T) {
	t.Parallel()
	found := 0
	for _, root := range []string{"../../cmd", "../../internal"} {
		eachNode(t, root, func(node ast.Node) {
			call, is := node.(*ast.CallExpr)
			if !is || len(call.Args) < 2 {
				return
			}
			method, is := call.Fun.(*ast.SelectorExpr)
			message, literal := call.Args[1].(*ast.BasicLit)
			if !is || method.Sel.Name != "Error" || !literal || message.Kind != token.STRING {
				return
			}
			found++
			if text, _ := strconv.Unquote(message.Value); progress.MatchString(message.Value) && !strings.Contains(text, "fail") {
				t.Errorf("the log has the error %q: begin it with failed to", text)
			}
		})
	}
	if found < 10 {
		t.Errorf("%d errors are logged: the test looks for the wrong thing", found)
	}
}
