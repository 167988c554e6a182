package app

import (
	"errors"
	"net/http"

	admissionv1client "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	eventsv1client "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
)

// apiClients are for what the manager's cache does not have. client-go's Clientset would bring the clients of all groups into the
// program.
type apiClients struct {
	admission      admissionv1client.AdmissionregistrationV1Interface
	authentication authenticationv1client.AuthenticationV1Interface
	authorization  authorizationv1client.AuthorizationV1Interface
	coordination   coordinationv1client.CoordinationV1Interface
	core           corev1client.CoreV1Interface
	events         eventsv1client.EventsV1Interface
}

func newAPIClients(config *rest.Config, by *http.Client) (*apiClients, error) {
	admission, admissionErr := admissionv1client.NewForConfigAndClient(config, by)
	authentication, authenticationErr := authenticationv1client.NewForConfigAndClient(config, by)
	authorization, authorizationErr := authorizationv1client.NewForConfigAndClient(config, by)
	coordination, coordinationErr := coordinationv1client.NewForConfigAndClient(config, by)
	core, coreErr := corev1client.NewForConfigAndClient(config, by)
	events, eventsErr := eventsv1client.NewForConfigAndClient(config, by)
	return &apiClients{
		admission: admission, authentication: authentication, authorization: authorization,
		coordination: coordination, core: core, events: events,
	}, errors.Join(admissionErr, authenticationErr, authorizationErr, coordinationErr, coreErr, eventsErr)
}
