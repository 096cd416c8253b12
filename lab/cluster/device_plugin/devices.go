package main

import (
	"errors"
	"fmt"
	"io/ioutil"
	"strings"

	"sigs.k8s.io/yaml"
)

var errAnew = errors.New("the kubelet has begun anew")

type device struct {
	id, path string
	healthy  bool
}

// devicesOf returns what the file says, line by line.
func devicesOf(file string) ([]device, error) {
	text, err := ioutil.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var found []device
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		words := strings.Fields(line)
		if len(words) != 3 || (words[1] != "healthy" && words[1] != "unhealthy") {
			return nil, fmt.Errorf("%s: %q is not ID, healthy or unhealthy, and PATH", file, line)
		}
		found = append(found, device{words[0], words[2], words[1] == "healthy"})
	}
	return found, nil
}

type sharing struct {
	name     string
	replicas int
}

type sharedResource struct {
	Name     string `json:"name"`
	Rename   string `json:"rename"`
	Replicas int    `json:"replicas"`
}

type shares struct {
	RenameByDefault bool             `json:"renameByDefault"`
	Resources       []sharedResource `json:"resources"`
}

// sharingOf returns under which name and how often each device is offered, by a file of NVIDIA's form; "" is none.
func sharingOf(file, resource string) (sharing, error) {
	alone := sharing{resource, 1}
	if file == "" {
		return alone, nil
	}
	text, err := ioutil.ReadFile(file)
	if err != nil {
		return alone, err
	}
	var config struct {
		Sharing struct {
			TimeSlicing shares `json:"timeSlicing"`
			Mps         shares `json:"mps"`
		} `json:"sharing"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return alone, err
	}
	for _, each := range []shares{config.Sharing.TimeSlicing, config.Sharing.Mps} {
		for _, entry := range each.Resources {
			if entry.Name != resource || entry.Replicas < 2 {
				continue
			}
			name := entry.Name
			if entry.Rename != "" {
				name = entry.Rename
			} else if each.RenameByDefault {
				name += ".shared"
			}
			return sharing{name, entry.Replicas}, nil
		}
	}
	return alone, nil
}
