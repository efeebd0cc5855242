package rehearse

import _ "embed"

// JSONSchema describes a Result (JSON Schema, draft 2020-12). It is made from the types of this package.
//
//go:embed schema.json
var JSONSchema []byte
