package app

import (
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lastcall-proxy/lastcall/bench/load"
)

// grpc echoes whatever any method is sent: a method that ends in Stream as often as it is sent something, others once. One that
// ends in Push sends a numbered message at the interval that it was sent, one that ends in Upload says at the end how many came.
func (a *App) grpc() http.Handler {
	return grpc.NewServer(grpc.ForceServerCodecV2(load.Raw{}), grpc.MaxRecvMsgSize(64<<20), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(s)
		kind, long := "grpc-unary", strings.HasSuffix(method, "Stream")
		if long {
			kind = "grpc-stream"
		}
		call := a.echoCall
		switch {
		case strings.HasSuffix(method, "Push"):
			kind, call = "grpc-stream", a.pushCall
		case strings.HasSuffix(method, "Upload"):
			kind, call = "grpc-stream", a.uploadCall
		}
		a.ledger.begin(kind)
		err := call(s, kind, long)
		a.ledger.end(kind, err == nil || status.Code(err) == codes.Unavailable)
		return err
	}))
}

func (a *App) echoCall(s grpc.ServerStream, kind string, long bool) error {
	type message struct {
		b   []byte
		err error
	}
	in := make(chan message)
	go func() {
		for {
			var m message
			m.err = s.RecvMsg(&m.b)
			select {
			case in <- m:
			case <-s.Context().Done():
				return
			}
			if m.err != nil || !long {
				return
			}
		}
	}()
	going := a.going
	if !long {
		going = nil // a short call is answered
	}
	for {
		select {
		case m := <-in:
			if errors.Is(m.err, io.EOF) {
				return nil
			}
			if m.err != nil {
				return m.err
			}
			a.ledger.message(kind, true)
			if err := s.SendMsg(&m.b); err != nil {
				return err
			}
			a.ledger.message(kind, false)
			if !long {
				return nil
			}
		case <-going:
			return errGoing
		case <-s.Context().Done():
			return status.FromContextError(s.Context().Err()).Err()
		}
	}
}

var errGoing = status.Error(codes.Unavailable, "the app is going")

func (a *App) pushCall(s grpc.ServerStream, kind string, _ bool) error {
	var question []byte
	if err := s.RecvMsg(&question); err != nil {
		return err
	}
	every, err := time.ParseDuration(string(question))
	if err != nil || every <= 0 {
		every = 200 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := uint64(0); ; n++ {
		b := binary.BigEndian.AppendUint64(nil, n)
		if err := s.SendMsg(&b); err != nil {
			return err
		}
		a.ledger.message(kind, false)
		select {
		case <-tick.C:
		case <-a.going:
			return errGoing
		case <-s.Context().Done():
			return status.FromContextError(s.Context().Err()).Err()
		}
	}
}

func (a *App) uploadCall(s grpc.ServerStream, kind string, _ bool) error {
	ended := make(chan error, 1)
	n := uint64(0)
	go func() {
		for {
			var b []byte
			if err := s.RecvMsg(&b); err != nil {
				ended <- err
				return
			}
			n++
			a.ledger.message(kind, true)
		}
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, io.EOF) {
			return err
		}
		b := binary.BigEndian.AppendUint64(nil, n)
		if err := s.SendMsg(&b); err != nil {
			return err
		}
		a.ledger.message(kind, false)
		return nil
	case <-a.going:
		return errGoing
	}
}
