package proof

import _ "embed"

// JSONSchema describes the document (JSON Schema, draft 2020-12). It is made from the types of this package.
//
//go:embed schema.json
var JSONSchema []byte
