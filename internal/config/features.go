package config

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Features are off unless the file switches them on, except for the status page. All hold for the life of the process.
type Features struct {
	// Enroll gives Rollcall's hooks to the CloneSets of the namespaces that ask for it.
	Enroll bool
	// PodCondition has each managed pod show whether it is in rotation.
	PodCondition bool
	StatusPage   StatusPage
	Evictions    Evictions
}

// StatusPage is who is shown pods on the status page.
type StatusPage string

// Without a value in the file, the page shows pods to readers who are known and may list them. By true it shows them also to readers who
// are not known, and by false there is no page.
const (
	PageForKnown StatusPage = ""
	PageForAll   StatusPage = "true"
	PageOff      StatusPage = "false"
)

// Evictions is how evictions of managed pods become deletions that the hooks hold up.
type Evictions struct {
	Enabled bool
	// Limit is how long an eviction waits for OpenKruise.
	Limit time.Duration
	// Name is that of the webhook's Service, Secret and MutatingWebhookConfiguration.
	Name string
}

func (o *object) features() Features {
	f := Features{Enroll: o.flag("enroll"), PodCondition: o.flag("podCondition"), StatusPage: o.statusPage("statusPage")}
	o.object("evictions", func(o *object) { f.Evictions = o.evictions() })
	return f
}

func (o *object) statusPage(name string) StatusPage {
	switch written := o.any(name); {
	case written == nil:
		return PageForKnown
	case o.flag(name):
		return PageForAll
	default:
		return PageOff
	}
}

func (o *object) evictions() Evictions {
	e := Evictions{
		Enabled: o.flag("enabled"), Limit: o.duration("limit", 10*time.Minute, time.Second),
		Name: o.textOr("name", "rollcall-evictions"),
	}
	if len(validation.IsDNS1035Label(e.Name)) > 0 {
		o.invalid("name", e.Name, "set the name of the webhook's Service, Secret and MutatingWebhookConfiguration")
	}
	return e
}

// WithoutWrites leaves out what writes something, and returns the fields of that.
func (f Features) WithoutWrites() (left Features, out []string) {
	left = Features{StatusPage: f.StatusPage, Evictions: f.Evictions}
	left.Evictions.Enabled = false
	return left, f.differ(left)
}

// differ returns the fields of the file that differ.
func (f Features) differ(other Features) (fields []string) {
	for _, of := range []struct {
		name    string
		differs bool
	}{
		{"enroll", f.Enroll != other.Enroll},
		{"podCondition", f.PodCondition != other.PodCondition},
		{"statusPage", f.StatusPage != other.StatusPage},
		{"evictions", f.Evictions != other.Evictions},
	} {
		if of.differs {
			fields = append(fields, of.name)
		}
	}
	return fields
}
