package plugin

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// skewWithin bounds what a warning that nobody asked for may take.
const skewWithin = 2 * time.Second

// kruiseNamespace is where OpenKruise's chart installs it.
const kruiseNamespace = "kruise-system"

func (o *options) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of the plugin, the managers, OpenKruise and Kubernetes",
		Long: "Print the versions of the plugin, the managers, OpenKruise and Kubernetes. Those of the managers and of OpenKruise are the tags " +
			"of their images.",
		Example: "  kubectl rollcall version",
		Args:    cobra.NoArgs,
		RunE: o.connected(func(ctx context.Context, c *cluster, _ []string) error {
			c.printVersions(ctx, c.serverVersion)
			return nil
		}),
	}
}

// printVersions shows, where one can't be read, why.
func (c *cluster) printVersions(ctx context.Context, server func() (string, error)) {
	line := func(name, version string, err error) {
		if err != nil {
			version = "not known: " + err.Error()
		}
		fmt.Fprintf(c.Out, "%-12s%s\n", name+":", printable(version))
	}
	line("plugin", c.version, nil)
	pods, err := c.managerPods(ctx)
	line("managers", dash(strings.Join(tagsOf(pods), ", ")), err)
	kruise, err := c.kruisePods(ctx)
	line("openkruise", dash(strings.Join(tagsOf(kruise), ", ")), err)
	version, err := server()
	line("kubernetes", version, err)
}

func (c *cluster) kruisePods(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	labels := client.MatchingLabels{"control-plane": "controller-manager"}
	if err := c.List(ctx, &list, client.InNamespace(kruiseNamespace), labels); err != nil {
		return nil, reading("OpenKruise's pods", err)
	}
	return list.Items, nil
}

// tagsOf are those of the images of the container manager, as both Rollcall and OpenKruise call it, each once.
func tagsOf(pods []corev1.Pod) (tags []string) {
	for i := range pods {
		for _, one := range pods[i].Spec.Containers {
			if one.Name == "manager" {
				tags = append(tags, tagOf(one.Image))
			}
		}
	}
	slices.Sort(tags)
	return slices.Compact(tags)
}

// tagOf is an image's tag, or its digest where it has none.
func tagOf(image string) string {
	image, digest, pinned := strings.Cut(image, "@")
	if at := strings.LastIndex(image, ":"); at > strings.LastIndex(image, "/") {
		return image[at+1:]
	}
	if pinned {
		return digest
	}
	return "latest"
}

var releasedVersion = regexp.MustCompile(`^v\d+\.\d+\.\d+`)

// skew reports that a manager has another version than the plugin, if both are releases: what is built from a checkout has no order.
func skew(plugin string, managers []string) string {
	if !releasedVersion.MatchString(plugin) {
		return ""
	}
	others := slices.DeleteFunc(slices.Clone(managers), func(v string) bool {
		if !strings.HasPrefix(v, "v") {
			v = "v" + v // as some mirrors name them
		}
		return v == plugin || !releasedVersion.MatchString(v)
	})
	if len(others) == 0 {
		return ""
	}
	return fmt.Sprintf("this plugin is %s, and the managers are %s: install the plugin of their version", plugin, strings.Join(others, ", "))
}

// warnOfSkew is silent if the managers can't be read: the command itself shows what a person may not do.
func (c *cluster) warnOfSkew(ctx context.Context) {
	if !releasedVersion.MatchString(c.version) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, skewWithin)
	defer cancel()
	if pods, err := c.managerPods(ctx); err == nil {
		if text := skew(c.version, tagsOf(pods)); text != "" {
			c.warnOnce("%s", text)
		}
	}
}
