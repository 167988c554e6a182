package main

import (
	"go/ast"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

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
			if !is {
				return
			}
			message := leftmost(call.Args[1])
			if of, isPackage := method.X.(*ast.Ident); isPackage && of.Name == "http" {
				return // an answer
			}
			if method.Sel.Name != "Error" || message == nil || isNil(call.Args[0]) {
				return
			}
			found++
			if text, _ := strconv.Unquote(message.Value); !strings.HasPrefix(text, "failed to ") {
				t.Errorf("the log has the error %q: begin it with failed to", text)
			}
		})
	}
	if found < 10 {
		t.Errorf("%d errors are logged: the test looks for the wrong thing", found)
	}
}

// leftmost is the text with which an expression begins, or nil.
func leftmost(e ast.Expr) *ast.BasicLit {
	if sum, is := e.(*ast.BinaryExpr); is {
		return leftmost(sum.X)
	}
	if text, is := e.(*ast.BasicLit); is && text.Kind == token.STRING {
		return text
	}
	return nil
}

// isNil: a line at the level of errors without one shows a state, not a failure.
func isNil(e ast.Expr) bool {
	name, is := e.(*ast.Ident)
	return is && name.Name == "nil"
}
