package benchtest

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/invopop/jsonschema"
	validate "github.com/santhosh-tekuri/jsonschema/v6"
)

var update = flag.Bool("update", false, "write schema.json anew")

// SchemaFresh compares schema.json in the test's folder with what v's type says; -update writes it. base is the package's path
// in the module, for the fields' comments.
func SchemaFresh(t *testing.T, v any, id, base string) {
	t.Helper()
	r := jsonschema.Reflector{AllowAdditionalProperties: true} // later versions add to it
	if err := r.AddGoComments("github.com/lastcall-proxy/lastcall/"+base, "."); err != nil {
		t.Fatal(err)
	}
	s := r.Reflect(v)
	s.ID = ""
	s.Title = id
	want, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile("schema.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("schema.json is not what the types say (go test -update):\n%s", diff)
	}
}

// Conforms checks a document against a schema.
func Conforms(t *testing.T, schema, doc []byte) {
	t.Helper()
	if err := conforms(schema, doc); err != nil {
		t.Errorf("the document does not fit its schema: %v", err)
	}
}

// Contradicts makes sure that a document does not fit: a schema that takes everything proves nothing.
func Contradicts(t *testing.T, schema, doc []byte) {
	t.Helper()
	if conforms(schema, doc) == nil {
		t.Errorf("the schema takes %.200s", doc)
	}
}

func conforms(schema, doc []byte) error {
	s, err := validate.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return err
	}
	c := validate.NewCompiler()
	if err := c.AddResource("schema.json", s); err != nil {
		return err
	}
	compiled, err := c.Compile("schema.json")
	if err != nil {
		return err
	}
	v, err := validate.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		return err
	}
	return compiled.Validate(v)
}
