package http2

import "encoding/binary"

// Frame types (RFC 9113 section 6).
const (
	typeData         = 0
	typeHeaders      = 1
	typePriority     = 2
	typeReset        = 3
	typeSettings     = 4
	typePushPromise  = 5
	typePing         = 6
	typeGoAway       = 7
	typeWindowUpdate = 8
	typeContinuation = 9
)

// Flags.
const (
	flagEndStream  = 0x01 // DATA, HEADERS
	flagAck        = 0x01 // SETTINGS, PING
	flagEndHeaders = 0x04
	flagPadded     = 0x08
	flagPriority   = 0x20
)

// Settings (RFC 9113 section 6.5.2, RFC 8441 section 3).
const (
	settingTableSize     = 1
	settingInitialWindow = 4
)

// Error codes (RFC 9113 section 7).
const (
	codeNoError       = 0x0
	codeInternalError = 0x2
	codeRefusedStream = 0x7
	codeCancel        = 0x8
)

var codeNames = [...]string{
	"NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED", "FRAME_SIZE_ERROR",
	"REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
}

func codeName(code uint32) string {
	if int64(code) < int64(len(codeNames)) {
		return codeNames[code]
	}
	return "UNKNOWN"
}

const (
	headLen       = 9 // of a frame
	maxID         = 1<<31 - 1
	defaultWindow = 65535    // RFC 9113 section 6.9.2
	safeFrame     = 16 << 10 // every peer takes frames of this size (section 4.2)
)

// Preface is what a client sends first (RFC 9113 section 3.4).
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

func appendHead(b []byte, length int, typ, flags uint8, id uint32) []byte {
	b = append(b, byte(length>>16), byte(length>>8), byte(length), typ, flags)
	return binary.BigEndian.AppendUint32(b, id)
}

func appendReset(b []byte, id, code uint32) []byte {
	return binary.BigEndian.AppendUint32(appendHead(b, 4, typeReset, 0, id), code)
}

func appendGoAway(b []byte, last, code uint32) []byte {
	b = appendHead(b, 8, typeGoAway, 0, 0)
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, last), code)
}

func appendPing(b []byte, payload uint64) []byte {
	return binary.BigEndian.AppendUint64(appendHead(b, 8, typePing, 0, 0), payload)
}

func appendWindowUpdate(b []byte, id, n uint32) []byte {
	return binary.BigEndian.AppendUint32(appendHead(b, 4, typeWindowUpdate, 0, id), n)
}

// appendBlock appends a header block in as many frames as it needs.
func appendBlock(b []byte, id uint32, flags uint8, priority, block []byte) []byte {
	first := min(len(block), safeFrame-len(priority))
	flags &= flagEndStream
	if len(priority) > 0 {
		flags |= flagPriority
	}
	if first == len(block) {
		flags |= flagEndHeaders
	}
	b = appendHead(b, len(priority)+first, typeHeaders, flags, id)
	b = append(append(b, priority...), block[:first]...)
	for block = block[first:]; len(block) > 0; {
		n, flags := min(len(block), safeFrame), uint8(0)
		if n == len(block) {
			flags = flagEndHeaders
		}
		b = append(appendHead(b, n, typeContinuation, flags, id), block[:n]...)
		block = block[n:]
	}
	return b
}
