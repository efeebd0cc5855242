package tracker

import (
	"fmt"
	"strings"
)

// AllDirections lists the directions in declaration order. Like the other All functions it returns a fresh slice.
func AllDirections() []Direction { return all[Direction](int(numDirections)) }

// AllKinds lists the kinds.
func AllKinds() []Kind { return all[Kind](int(numKinds)) }

// AllFates lists the fates; FateOpen is not one.
func AllFates() []Fate { return all[Fate](int(numFates))[1:] }

// AllParties lists the parties.
func AllParties() []Party { return all[Party](int(numParties)) }

// AllHows lists the means.
func AllHows() []How { return all[How](int(numHows)) }

// AllStages lists the stages.
func AllStages() []Stage { return all[Stage](int(numStages)) }

// AllClasses lists the classes.
func AllClasses() []Class { return all[Class](int(numClasses)) }

// AllWaitings lists whose turn it can be.
func AllWaitings() []WaitingOn { return all[WaitingOn](int(numWaitings)) }

// AllPhases lists the phases.
func AllPhases() []Phase { return all[Phase](int(numPhases)) }

// AllWhats lists the kinds of record.
func AllWhats() []What { return all[What](int(numWhats)) }

// AllAnswers lists the answers; AnswerNone is not one.
func AllAnswers() []Answer { return all[Answer](int(numAnswers))[1:] }

// AllFarewells lists the farewells; FarewellNone is not one.
func AllFarewells() []FarewellKind { return all[FarewellKind](int(numFarewells))[1:] }

// ParseDirection takes the name that String gives, as ParseKind and the other Parse functions do.
func ParseDirection(name string) (Direction, error) {
	return parse[Direction]("direction", directionNames[:], name)
}

// ParseKind parses a kind's name.
func ParseKind(name string) (Kind, error) { return parse[Kind]("kind", kindNames[:], name) }

// ParseFate parses a fate's name. The empty name is FateOpen.
func ParseFate(name string) (Fate, error) { return parse[Fate]("fate", fateNames[:], name) }

// ParseWaitingOn parses a waiting_on name.
func ParseWaitingOn(name string) (WaitingOn, error) {
	return parse[WaitingOn]("waiting_on", waitingNames[:], name)
}

// ParsePhase parses a phase's name.
func ParsePhase(name string) (Phase, error) { return parse[Phase]("phase", phaseNames[:], name) }

// Opaque says whether a kind is bytes both ways that are not read as exchanges: such a stream has no end of its own that
// an idle connection would outlive.
func (k Kind) Opaque() bool {
	switch k {
	case KindWebSocket, KindTunnel, KindTCP, KindTLS:
		return true
	case KindHTTP1, KindHTTP2, KindGRPC, KindSSE:
		return false
	}
	return false
}

// LongLived says whether every stream of the kind is long-lived, whatever its age.
func (k Kind) LongLived() bool { return k.Opaque() || k == KindSSE }

// MarshalText gives the name, as String does. The enums' text forms make records and reports decodable.
func (d Direction) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// MarshalText gives the name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// MarshalText gives the name.
func (f Fate) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// MarshalText gives the name.
func (p Party) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// MarshalText gives the name.
func (h How) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// MarshalText gives the name.
func (s Stage) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalText gives the name.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// MarshalText gives the name.
func (w WaitingOn) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// MarshalText gives the name.
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// MarshalText gives the name.
func (w What) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// MarshalText gives the name.
func (a Answer) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// MarshalText gives the name.
func (f FarewellKind) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText takes a name.
func (d *Direction) UnmarshalText(b []byte) error {
	return unmarshal(d, "direction", directionNames[:], b)
}

// UnmarshalText takes a name.
func (k *Kind) UnmarshalText(b []byte) error { return unmarshal(k, "kind", kindNames[:], b) }

// UnmarshalText takes a name; the empty one is FateOpen.
func (f *Fate) UnmarshalText(b []byte) error { return unmarshal(f, "fate", fateNames[:], b) }

// UnmarshalText takes a name; the empty one, as in a record that is still open, is ByUnknown.
func (p *Party) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*p = ByUnknown
		return nil
	}
	return unmarshal(p, "party", partyNames[:], b)
}

// UnmarshalText takes a name; the empty one, as in a record that is still open, is HowUnknown.
func (h *How) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*h = HowUnknown
		return nil
	}
	return unmarshal(h, "how", howNames[:], b)
}

// UnmarshalText takes a name.
func (s *Stage) UnmarshalText(b []byte) error { return unmarshal(s, "stage", stageNames[:], b) }

// UnmarshalText takes a name.
func (c *Class) UnmarshalText(b []byte) error { return unmarshal(c, "class", classNames[:], b) }

// UnmarshalText takes a name.
func (w *WaitingOn) UnmarshalText(b []byte) error {
	return unmarshal(w, "waiting_on", waitingNames[:], b)
}

// UnmarshalText takes a name.
func (p *Phase) UnmarshalText(b []byte) error { return unmarshal(p, "phase", phaseNames[:], b) }

// UnmarshalText takes a name.
func (w *What) UnmarshalText(b []byte) error { return unmarshal(w, "record kind", whatNames[:], b) }

// UnmarshalText takes a name.
func (a *Answer) UnmarshalText(b []byte) error { return unmarshal(a, "answer", answerNames[:], b) }

// UnmarshalText takes a name.
func (f *FarewellKind) UnmarshalText(b []byte) error {
	return unmarshal(f, "farewell", farewellNames[:], b)
}

func all[T ~uint8](n int) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = T(i)
	}
	return out
}

func parse[T ~uint8](what string, names []string, name string) (T, error) {
	for i, n := range names {
		if n == name {
			return T(i), nil
		}
	}
	return 0, fmt.Errorf("tracker: unknown %s %q (one of: %s)", what, name, strings.TrimPrefix(strings.Join(names, ", "), ", "))
}

func unmarshal[T ~uint8](to *T, what string, names []string, b []byte) error {
	v, err := parse[T](what, names, string(b))
	if err != nil {
		return err
	}
	*to = v
	return nil
}
