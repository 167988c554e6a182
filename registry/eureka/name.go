package eureka

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// check returns what Eureka, or a client of it, could not take of an instance.
func check(in registry.Instance) error {
	if err := driverkit.CheckInstance(in); err != nil {
		return err
	}
	if err := checkService(in.Service); err != nil {
		return registry.Terminal(fmt.Errorf("the service name %q can't be used with Eureka: %w", in.Service, err))
	}
	return registry.Terminal(checkMeta(in.Meta()))
}

// checkService refuses names that would be another name on their way. The service is in the path of every request: Tomcat
// answers 400 to / and \ there, and Spring Security's firewall 401, as if the password were wrong, to the rest. Eureka's
// client takes a comma for the end of a name (Applications.addInstanceToMap), so one pod could claim another's.
func checkService(name string) error {
	const outlawed = `/\%;,`
	switch at := strings.IndexFunc(name, func(c rune) bool { return strings.ContainsRune(outlawed, c) || isControl(c) }); {
	case name == "." || name == "..":
		return errors.New(`"." and ".." are not allowed`)
	case at >= 0:
		c, _ := utf8.DecodeRuneInString(name[at:])
		return fmt.Errorf("it contains %q; / \\ %% ; , and control characters are not allowed", c)
	case !utf8.ValidString(name):
		return errors.New("it is not valid UTF-8")
	}
	return nil
}

// isControl holds for what can't be part of a name: the C0 and C1 controls, and Unicode's line and paragraph separators,
// which Spring Security refuses too.
func isControl(c rune) bool {
	return c < ' ' || c >= 0x7f && c <= 0x9f || c == '\u2028' || c == '\u2029'
}

// checkMeta refuses what would make the XML that the server writes of all its entries unreadable for every client that
// reads it.
func checkMeta(meta map[string]string) error {
	for key, value := range meta {
		switch {
		case key == "" || key == "@class" || strings.Contains(key, ":"):
			return fmt.Errorf("the metadata key %q can't be used with Eureka: its XML would be broken", key)
		case !isXML(key) || !isXML(value):
			return fmt.Errorf("the metadata %q can't be used with Eureka: it contains a character that XML does not allow", key)
		}
	}
	return nil
}

// isXML reports whether XML 1.0 can hold a text.
func isXML(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(c rune) bool {
		return c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0xfffe || c == 0xffff
	})
}

// upperASCII is a service's name as a path has it. The server makes it upper-case in any case, as it does with the name in
// the body; without this a service called delta would meet another resource, /apps/delta.
func upperASCII(name string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' {
			return c - 'a' + 'A'
		}
		return c
	}, name)
}
