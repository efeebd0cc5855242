package admin

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "github.com/lastcall-proxy/lastcall/tracker/trackerpb"
)

// healthService answers grpc.health.v1 from the same facts as GET /readyz: for the whole ("") and for the Tracker by name.
type healthService struct {
	healthpb.UnimplementedHealthServer
	ready func() (bool, string)
}

func (h *healthService) status(service string) (healthpb.HealthCheckResponse_ServingStatus, bool) {
	if service != "" && service != pb.Tracker_ServiceDesc.ServiceName {
		return healthpb.HealthCheckResponse_SERVICE_UNKNOWN, false
	}
	if ok, _ := h.ready(); ok {
		return healthpb.HealthCheckResponse_SERVING, true
	}
	return healthpb.HealthCheckResponse_NOT_SERVING, true
}

func (h *healthService) Check(_ context.Context, in *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	s, known := h.status(in.GetService())
	if !known {
		return nil, status.Errorf(codes.NotFound, "unknown service %q", in.GetService())
	}
	return &healthpb.HealthCheckResponse{Status: s}, nil
}

// Watch tells each change. A service that isn't known is said to be so and watched on, as the health protocol asks for.
func (h *healthService) Watch(in *healthpb.HealthCheckRequest, out grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	look := time.NewTicker(fastest)
	defer look.Stop()
	for last := healthpb.HealthCheckResponse_UNKNOWN; ; {
		if s, _ := h.status(in.GetService()); s != last {
			if err := out.Send(&healthpb.HealthCheckResponse{Status: s}); err != nil {
				return err
			}
			last = s
		}
		select {
		case <-out.Context().Done():
			return status.FromContextError(out.Context().Err()).Err()
		case <-look.C:
		}
	}
}
