// The lab's own device plugin: SIMULATED devices on a real kubelet's registration socket (v1beta1).
//
// Which devices there are, and which of them are healthy, a file says, which it reads again when it changes: a line for
// each, `ID healthy|unhealthy PATH`. By its name and options it stands in NVIDIA's place: nvidia.com/gpu, replicas and
// their name by the file that --config-file names.
package main

import (
	"flag"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

const pause = 300 * time.Millisecond

func main() {
	log.SetPrefix("SIMULATED devices: ")
	log.SetFlags(log.LUTC | log.Ltime)
	resource := flag.String("resource", "nvidia.com/gpu", "the resource's name")
	folder := flag.String("folder", "/var/lib/kubelet/device-plugins", "where the kubelet's socket is")
	config := flag.String("config-file", "", "NVIDIA's configuration, of which replicas and their name are taken")
	flag.Parse()
	shared, err := sharingOf(*config, *resource)
	if err != nil {
		log.Fatalf("%s: %v", *config, err)
	}
	// The kubelet removes files of its folder when it starts, and leaves folders.
	file := filepath.Join(*folder, "gpunode-lab", "devices")
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	for {
		devices, err := devicesOf(file)
		if err == nil {
			err = serve(*folder, file, shared, devices, ended)
		}
		if err == nil {
			return
		}
		log.Printf("%v; it is tried again", err)
		select {
		case <-ended:
			return
		case <-time.After(pause):
		}
	}
}

// serve offers the devices until the program is to end (nil), or the kubelet has begun anew (an error that says so).
func serve(folder, file string, shared sharing, devices []device, ended <-chan os.Signal) error {
	kubelet := filepath.Join(folder, "kubelet.sock")
	before, err := os.Stat(kubelet)
	if err != nil {
		return err
	}
	plugin := newPlugin(shared, devices)
	stop, err := plugin.listen(folder)
	if err != nil {
		return err
	}
	defer stop()
	if err := plugin.register(kubelet); err != nil {
		return err
	}
	log.Printf("registered %s with the kubelet: %d devices, %d each", shared.name, len(devices), shared.replicas)
	for {
		select {
		case <-ended:
			return nil
		case <-time.After(pause):
		}
		now, err := os.Stat(kubelet)
		if err != nil || !os.SameFile(before, now) || !now.ModTime().Equal(before.ModTime()) {
			return errAnew
		}
		if _, err := os.Stat(plugin.socket); err != nil {
			return errAnew
		}
		found, err := devicesOf(file)
		if err != nil {
			log.Print(err)
			continue
		}
		plugin.set(found)
	}
}
