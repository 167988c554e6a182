# What a kubelet would do next for this pod: one word, the name of the stage. Every stage selects on this, so no two of
# them ever match the same pod.
. as $pod
| ($pod.status.containerStatuses // []) as $containers
| ($pod.status.phase == "Succeeded" or $pod.status.phase == "Failed") as $ended
| ([$pod.status.conditions[]? | select(.status == "True") | .type]) as $true
| ([$pod.spec.readinessGates[]?.conditionType | select(. as $gate | $true | index([$gate]) | not)]
   | length == 0) as $gatesOpen
| any($pod.spec.containers[]; .lifecycle.preStop.sleep) as $sleeps
| if $pod.metadata.deletionTimestamp then
    if $ended | not then "stop"
    elif ($pod.metadata.deletionGracePeriodSeconds // 0) > 0 then "delete"
    else "none" end
  elif $ended then "none"
  elif ($containers | length) == 0 then "start"
  elif $sleeps and ($gatesOpen | not) and ($true | index(["Ready"])) then "gates-shut"
  elif any($pod.spec.containers[] as $want | $containers[] | select(.name == $want.name and .image != $want.image);
           .state.running) then "kill"
  elif any($containers[]; .state.running | not) then "restart"
  elif any($containers[]; .ready | not) then "ready"
  elif $gatesOpen and ($true | index(["Ready"]) | not) then "gates-open"
  elif ($gatesOpen | not) and ($true | index(["Ready"])) then "gates-shut"
  else "none" end
