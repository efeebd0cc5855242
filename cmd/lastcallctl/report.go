package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/lastcall-proxy/lastcall/bench/proof"
	"github.com/lastcall-proxy/lastcall/bench/rehearse"
)

func reportCommand(stdout io.Writer) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "report FILE", Short: "Show a proof's or a rehearsal's JSON in another form", Args: cobra.ExactArgs(1),
		Long: "Reads a document of lastcallctl prove or rehearse (-: standard input) and writes it in another form.\nExit status: 0 written, whatever its verdict; 2 it is no such document; 3 it could not be written.",
	}
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text, markdown, junit, html, or schema: the JSON Schema of such a file")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		signal.Reset() // there is nothing to be undone
		d, schema, err := read(args[0])
		if err != nil {
			return err
		}
		forms := map[string]func(io.Writer) error{
			"text": d.Text, "markdown": d.Markdown, "junit": d.JUnit, "html": d.HTML,
			"schema": func(w io.Writer) error { _, err := w.Write(schema); return err },
		}
		form, ok := forms[format]
		if !ok {
			return fmt.Errorf("-o %q: want text, markdown, junit, html or schema", format)
		}
		if err := form(stdout); err != nil {
			return status{err, exitNoVerdict}
		}
		return nil
	}
	return cmd
}

// read tells by its schema what a file is.
func read(path string) (d document, schema []byte, err error) {
	var b []byte
	if path == "-" {
		b, err = io.ReadAll(os.Stdin)
	} else {
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, nil, err
	}
	var head struct{ Schema string }
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	switch head.Schema {
	case proof.Schema:
		d, schema = new(proof.Proof), proof.JSONSchema
	case rehearse.Schema:
		d, schema = new(rehearse.Result), rehearse.JSONSchema
	default:
		return nil, nil, fmt.Errorf("%s: schema %q, this reads %q and %q", path, head.Schema, proof.Schema, rehearse.Schema)
	}
	if err := json.Unmarshal(b, d); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := d.Check(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return d, schema, nil
}
