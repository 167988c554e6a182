// Package guide reads the commands that the README and the pages of docs show, for the tests that hold them to what there is.
//
// A fence says who runs its commands: TestCommandsOfTheGuides those of sh, console and "sh install", CI those for make, and no
// test "sh cluster", which takes a cluster with nodes, a network or a registry. In a console, the lines after "$ " are
// commands and the others are what they print.
package guide

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The marks of a fence.
const (
	Cluster = "cluster"
	Install = "install"
)

// Command is one that a page shows.
type Command struct {
	// Page is the path of the page below the root, and Line the command's line in it.
	Page string
	Line int
	// Marks is what the fence says after its language.
	Marks []string
	// Text is what a shell runs, without the comment behind it.
	Text string
	// Output is what a console shows after it.
	Output string
}

func (c Command) String() string { return fmt.Sprintf("%s:%d: %s", c.Page, c.Line, c.Text) }

// Has reports whether the fence has the mark.
func (c Command) Has(mark string) bool { return slices.Contains(c.Marks, mark) }

// fence matches a line that opens or closes a block; what follows the language are marks.
var fence = regexp.MustCompile("^ *```(\\S*) *(.*)$")

// comment matches one at the end of a command.
var comment = regexp.MustCompile(`(^|\s)\s*#\s.*$`)

// Commands returns those of the README and the other pages in the root, and of docs.
func Commands(root string) ([]Command, error) {
	pages, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil {
		return nil, fmt.Errorf("looking for pages: %w", err)
	}
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("looking for pages: %w", err)
	}
	var all []Command
	for _, path := range pages {
		if strings.HasSuffix(path, ".zh-CN.md") {
			continue // it has the commands of the page that it translates
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading a page: %w", err)
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return nil, fmt.Errorf("reading a page: %w", err)
		}
		all = append(all, CommandsOf(name, string(text))...)
	}
	return all, nil
}

// printed adds a line of a console to what its last command prints.
func printed(all []Command, language, line string) {
	if language == "console" && len(all) > 0 {
		all[len(all)-1].Output += line + "\n"
	}
}

// CommandsOf returns the commands of one page.
func CommandsOf(page, text string) (all []Command) {
	language, marks, begun := "", []string(nil), (*Command)(nil)
	inside := false
	for i, line := range strings.Split(text, "\n") {
		if match := fence.FindStringSubmatch(line); match != nil {
			inside = !inside
			language, marks, begun = match[1], strings.Fields(match[2]), nil
			continue
		}
		line = strings.TrimSpace(line)
		if !inside || line == "" || !slices.Contains([]string{"sh", "console"}, language) {
			continue
		}
		if begun != nil { // the command goes on
			begun.Text += "\n" + line
		} else {
			prompted, prompt := strings.CutPrefix(line, "$ ")
			if prompt != (language == "console") || strings.HasPrefix(line, "# ") {
				printed(all, language, line)
				continue
			}
			begun = &Command{Page: page, Line: i + 1, Marks: marks, Text: prompted}
		}
		if strings.Count(begun.Text, "'")%2 == 0 {
			begun.Text = comment.ReplaceAllString(begun.Text, "")
			if !strings.HasSuffix(begun.Text, `\`) && !strings.HasSuffix(begun.Text, "|") {
				all, begun = append(all, *begun), nil
			}
		}
	}
	return all
}
