package app

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lastcall-proxy/lastcall/bench/load"
)

// grpc echoes whatever any method is sent: a method that ends in Stream as often as it is sent something, others once.
func (a *App) grpc() http.Handler {
	return grpc.NewServer(grpc.ForceServerCodecV2(load.Raw{}), grpc.MaxRecvMsgSize(64<<20), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(s)
		kind, long := "grpc-unary", strings.HasSuffix(method, "Stream")
		if long {
			kind = "grpc-stream"
		}
		a.ledger.begin(kind)
		err := a.echoCall(s, kind, long)
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
			return status.Error(codes.Unavailable, "the app is going")
		case <-s.Context().Done():
			return status.FromContextError(s.Context().Err()).Err()
		}
	}
}
