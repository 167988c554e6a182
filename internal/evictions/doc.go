// Package evictions turns evictions of managed pods into hooked deletions. An eviction deletes a pod without its hooks, and no
// finalizer holds its containers. The [Webhook] answers it with 429 and labels the pod, so that OpenKruise deletes it and
// asks the preDelete hook first; whoever evicts tries again until the pod is gone. It also refuses resizes by which kubelet
// would restart a container of a pod that serves. [Decide] is pure. The [Certificate] is what the webhook serves with, and the
// [Issuer] makes it where no one else does.
package evictions
