package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	socketName = "gpunode-lab.sock"
	patience   = 5 * time.Second
)

type plugin struct {
	shared  sharing
	socket  string
	mutex   sync.Mutex
	devices []device
	changed chan struct{}
	closed  chan struct{}
}

func newPlugin(shared sharing, devices []device) *plugin {
	return &plugin{shared: shared, devices: devices, changed: make(chan struct{}), closed: make(chan struct{})}
}

// set takes what the file says now, and wakes whoever watches where that differs.
func (p *plugin) set(devices []device) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if reflect.DeepEqual(p.devices, devices) {
		return
	}
	log.Printf("the devices are now %v", devices)
	p.devices = devices
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *plugin) now() ([]device, <-chan struct{}) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.devices, p.changed
}

// listen serves on a socket of its own, and returns what ends that.
func (p *plugin) listen(folder string) (func(), error) {
	p.socket = filepath.Join(folder, socketName)
	if err := os.Remove(p.socket); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	listener, err := net.Listen("unix", p.socket)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	go server.Serve(listener)
	return func() { close(p.closed); server.Stop() }, nil
}

func (p *plugin) register(kubelet string) error {
	limited, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	dial := func(within context.Context, path string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(within, "unix", path)
	}
	connection, err := grpc.DialContext(limited, kubelet, grpc.WithInsecure(), grpc.WithBlock(), grpc.WithContextDialer(dial))
	if err != nil {
		return fmt.Errorf("%s: %v", kubelet, err)
	}
	defer connection.Close()
	asks := &api.RegisterRequest{Version: api.Version, Endpoint: socketName, ResourceName: p.shared.name}
	_, err = api.NewRegistrationClient(connection).Register(limited, asks)
	return err
}

// GetDevicePluginOptions says that nothing is to be called before a container starts.
func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch tells the devices, and again whenever they change.
func (p *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	for {
		devices, changed := p.now()
		if err := stream.Send(&api.ListAndWatchResponse{Devices: p.offered(devices)}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-p.closed:
			return nil
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (p *plugin) offered(devices []device) []*api.Device {
	var found []*api.Device
	for _, each := range devices {
		health := api.Unhealthy
		if each.healthy {
			health = api.Healthy
		}
		for number := 0; number < p.shared.replicas; number++ {
			id := each.id
			if p.shared.replicas > 1 {
				id = fmt.Sprintf("%s::%d", each.id, number)
			}
			found = append(found, &api.Device{ID: id, Health: health})
		}
	}
	return found
}

// Allocate gives a container the devices' files, and NVIDIA's variable that names them.
func (p *plugin) Allocate(_ context.Context, asked *api.AllocateRequest) (*api.AllocateResponse, error) {
	devices, _ := p.now()
	answer := &api.AllocateResponse{}
	for _, container := range asked.ContainerRequests {
		var names []string
		var files []*api.DeviceSpec
		for _, each := range devices {
			if has(container.DevicesIDs, each.id) {
				names = append(names, each.id)
				files = append(files, &api.DeviceSpec{ContainerPath: each.path, HostPath: each.path, Permissions: "rw"})
			}
		}
		told := map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(names, ","), "GPUNODE_LAB_DEVICES": "SIMULATED"}
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{Envs: told, Devices: files})
		log.Printf("%v given to a container as %v", names, container.DevicesIDs)
	}
	return answer, nil
}

func has(ids []string, id string) bool {
	for _, each := range ids {
		if each == id || strings.HasPrefix(each, id+"::") {
			return true
		}
	}
	return false
}

// GetPreferredAllocation is asked for nowhere.
func (p *plugin) GetPreferredAllocation(context.Context, *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	return &api.PreferredAllocationResponse{}, nil
}

// PreStartContainer is asked for nowhere.
func (p *plugin) PreStartContainer(context.Context, *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	return &api.PreStartContainerResponse{}, nil
}
