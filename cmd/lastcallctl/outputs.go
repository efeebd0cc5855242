package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// document is what a command has found, in its forms.
type document interface {
	Check() error // of one that was read: whether it can be shown
	Text(w io.Writer) error
	Markdown(w io.Writer) error
	JUnit(w io.Writer) error
	HTML(w io.Writer) error
}

// outputs are the files that a result goes to, and standard output's form.
type outputs struct {
	json, junit, html string // paths; "" is none
	form              string // of standard output: text or json
	files             []output
}

type output struct {
	flag  string
	file  *os.File
	write func(d document, w io.Writer) error
}

// open makes the files, before anything is taken or terminated. What they hold stays until there is something to write.
func (o *outputs) open() error {
	if o.form != "text" && o.form != "json" {
		return fmt.Errorf("-o %q: want text or json", o.form)
	}
	for _, f := range []struct {
		flag, path string
		write      func(d document, w io.Writer) error
	}{{"--json", o.json, encode}, {"--junit", o.junit, document.JUnit}, {"--html", o.html, document.HTML}} {
		if f.path == "" {
			continue
		}
		file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|syscall.O_NONBLOCK, 0o644) // a pipe that nobody reads would hold us
		if err != nil {
			o.close()
			return fmt.Errorf("%s: %w", f.flag, err)
		}
		for _, other := range o.files {
			if same(other.file, file) {
				_ = file.Close()
				o.close()
				return fmt.Errorf("%s: %s has that file already", f.flag, other.flag)
			}
		}
		o.files = append(o.files, output{f.flag, file, f.write})
	}
	return nil
}

// same says whether both are one regular file.
func same(a, b *os.File) bool {
	ai, aerr := a.Stat()
	bi, berr := b.Stat()
	return aerr == nil && berr == nil && ai.Mode().IsRegular() && os.SameFile(ai, bi)
}

func (o *outputs) close() {
	for _, f := range o.files {
		_ = f.file.Close()
	}
}

// tell writes every form. What can't be written is said, and the rest is written all the same.
func (o *outputs) tell(d document, stdout io.Writer) error {
	var errs []error
	for _, f := range o.files {
		var b bytes.Buffer
		err := f.write(d, &b)
		if err == nil {
			_ = f.file.Truncate(0) // of an earlier result; devices and pipes can't
			_, err = f.file.Write(b.Bytes())
		}
		if cerr := f.file.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.flag, err))
		}
	}
	form := document.Text
	if o.form == "json" {
		form = encode
	}
	if err := form(d, stdout); err != nil {
		errs = append(errs, fmt.Errorf("standard output: %w", err))
	}
	if o.html != "" && o.form == "text" && len(errs) == 0 {
		_, _ = fmt.Fprintf(stdout, "page: %s\n", o.html)
	}
	if len(errs) > 0 {
		return status{errors.Join(errs...), exitNoVerdict}
	}
	return nil
}

func encode(d document, w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return enc.Encode(d)
}
