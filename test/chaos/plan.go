package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/network"
)

// kind is what an action does.
type kind string

// What happens to workloads and pods.
const (
	update       kind = "update in place"
	recreate     kind = "update by new pods"
	rollBack     kind = "update, and roll back in the middle"
	scaleOut     kind = "scale out"
	scaleIn      kind = "scale in"
	cancelDelete kind = "scale in, and cancel it in the middle"
	markDeleted  kind = "delete pods by label"
	deletePods   kind = "delete pods behind Kruise's back"
	forceDelete  kind = "delete pods by force"
	turnUnready  kind = "have pods fail their probes for a while"
	movePods     kind = "move pods to other registries and services"
	moveAll      kind = "move pods to another registry by the configuration"
	describePods kind = "change what pods say of themselves"
	announceEnd  kind = "announce the end of pods"
)

// What happens to the managers and the API server.
const (
	killManager   kind = "kill the leading manager"
	killStandby   kind = "kill the other manager"
	killAtAnswer  kind = "kill the manager between a registry's answer and the patch"
	stopManager   kind = "stop the leading manager, as a rollout of its own does"
	pauseManager  kind = "pause the leading manager past its lease"
	restartServer kind = "restart the API server"
)

// What happens to the registry.
const (
	netSlow          = kind(network.Slow)
	netReset         = kind(network.Reset)
	netRefuse        = kind(network.Refuse)
	netCut           = kind(network.Cut)
	answer500   kind = "registry: answer 500"
	loseAnswers kind = "registry: do the work and lose the answer"
	holdBack    kind = "registry: hold calls back and do them after their time-out"
	wipeHalf    kind = "wipe half the registry"
	addForeign  kind = "add foreign entries"
	// leaveEntries is what pods leave that vanish while no manager works.
	leaveEntries kind = "leave entries of pods that are gone"
	// leaveTheirs is what a second cluster has that was given the same name. Nobody approves that they are removed.
	leaveTheirs kind = "leave entries of another cluster of the same name"
	loseApps    kind = "have applications lose their entries and write them again"
)

// What happens to a registry that is a cluster of servers.
const (
	killLeader     kind = "registry: kill the server that leads"
	cutServer      kind = "registry: cut one server off from its peers"
	cutAll         kind = "registry: cut all servers off from one another"
	cutUsed        kind = "registry: cut off the server that managers talk to"
	freezeUsed     kind = "registry: freeze the server that managers talk to"
	wipeServer     kind = "registry: take the disk of a server away"
	rollServers    kind = "registry: restart one server after the other"
	upgradeServers kind = "registry: upgrade one server after the other"
	stutter        kind = "registry: have a server stop and go"
	slowDisk       kind = "registry: have the disk of a server take its time"
	wrongClock     kind = "registry: set the clock of a server wrong until the calm"
)

// clusterFaults are those that every cluster has; upgradeServers takes two versions that are pinned, and comes once, and slowDisk servers
// that wait for their disk.
var clusterFaults = []kind{ //nolint:gochecknoglobals // a table
	killLeader, cutServer, cutAll, cutUsed, freezeUsed, wipeServer, rollServers, stutter,
}

// lasting are the faults of the registry that last for a while; never two at once.
var lasting = []kind{netSlow, netReset, netRefuse, netCut, answer500, loseAnswers, holdBack} //nolint:gochecknoglobals // a table

// killKinds count as kills, and faultKinds as faults; the rest is what users do.
func killKinds() []kind { return []kind{killManager, killStandby, killAtAnswer} }

func faultKinds() []kind {
	return append(
		[]kind{
			stopManager, pauseManager, restartServer, wipeHalf, addForeign, leaveEntries, leaveTheirs, loseApps, deletePods, forceDelete,
			turnUnready, announceEnd,
		},
		slices.Concat(lasting, clusterFaults, []kind{upgradeServers, slowDisk, wrongClock})...)
}

// promisedKinds have to come in every run on the stand-in that is long enough: they are what chaos is about.
func promisedKinds() []kind {
	ofClusters := append(slices.Clone(clusterFaults), upgradeServers, slowDisk, wrongClock)
	faults := slices.DeleteFunc(faultKinds(), func(k kind) bool { return slices.Contains(ofClusters, k) })
	return slices.Concat(killKinds(), faults, []kind{rollBack, cancelDelete, movePods, moveAll, describePods})
}

func (k kind) isOfNetwork() bool {
	return slices.Contains([]kind{netSlow, netReset, netRefuse, netCut}, k)
}

// takesTurns: there are never two of them at the same time.
func (k kind) takesTurns() bool {
	return slices.Contains(slices.Concat(lasting, clusterFaults, []kind{upgradeServers, slowDisk}), k)
}

// isWork holds for what users do to single workloads.
func (k kind) isWork() bool { return !k.isKill() && !k.isFault() && k != moveAll }

func (k kind) isKill() bool { return slices.Contains(killKinds(), k) }

func (k kind) isFault() bool { return slices.Contains(faultKinds(), k) }

// action is one thing that happens in a storm.
type action struct {
	at   time.Duration // since the storm began
	kind kind
	// workload is the index of the one that it happens to.
	workload int
	// count is of pods, or entries.
	count int
	// lasts is how long until it is undone: a fault ends, an update is rolled back.
	lasts time.Duration
	// dice is what is left to chance in it, so that the plan decides that too.
	dice uint64
}

func (a action) String() string {
	return fmt.Sprintf("%5.1fs %s (workload %d, count %d, lasts %s)", a.at.Seconds(), a.kind, a.workload, a.count,
		a.lasts.Round(time.Millisecond))
}

// share is one kind of action and how often it comes, relative to the others.
type share struct {
	kind kind
	of   int
}

// deck deals the same cards again and again, shuffled anew each time. The card at a place follows from the deck alone: a plan
// has every card that reaches over a whole round of them, however it is cut into storms.
type deck struct {
	seed, stream uint64
	cards        []kind
}

func (d deck) card(place int) kind {
	dealt := slices.Clone(d.cards)
	rng := rand.New(rand.NewPCG(d.seed, d.stream+uint64(place/len(dealt))))
	rng.Shuffle(len(dealt), func(i, j int) { dealt[i], dealt[j] = dealt[j], dealt[i] })
	return dealt[place%len(dealt)]
}

// The decks' streams of dice, apart from those of the rounds, which have the round's number.
const (
	streamOfFaults = 1 << 32
	streamOfBlows  = 2 << 32
)

// planner makes the storms of a seed. The storm of a round depends on nothing else.
type planner struct {
	seed      uint64
	workloads int
	storm     time.Duration
	// work is what happens to workloads, one action every workEvery, as a deck for each storm.
	work      []share
	workEvery time.Duration
	// faults are the registry's that last, one after the other, as one deck for all storms; empty: none. Where a theme
	// favours some, every other one is drawn from those.
	faults, favoured []kind
	// dealt is how many of the deck of faults every storm deals, whatever the dice say.
	dealt int
	// blows are the other faults, blowsPerStorm of them, as one deck for all storms.
	blows         []kind
	blowsPerStorm int
	// always comes in every storm, whatever the dice say.
	always []kind
	// last comes at the end of every storm, so that the calm has to repair it.
	last []kind
	// removals is resync.maxRemovals of the managers' configuration, if the seed does not choose it.
	removals string
	// themes are what the storms are about, one after the other; none leaves them as they are. They add, and weigh what
	// users do; what the decks deal stays.
	themes []func(*planner)
}

// longest are bounds of what lasts.
const (
	shortestFault = 3 * time.Second
	longestFault  = 8 * time.Second
	// faultGap is longer than a call may be late: no fault of the network delays a call that another one then holds back.
	faultGap = 2500 * time.Millisecond
	// faultJitter is around when the next one begins.
	faultJitter = time.Second
	// leaseLasts is how long the managers' lease does.
	leaseLasts = 15 * time.Second
	pastLease  = leaseLasts + 4*time.Second
)

func fullPlan(seed uint64, workloads int) planner {
	return planner{
		seed: seed, workloads: workloads, storm: time.Minute,
		work: []share{
			{update, 5}, {recreate, 2}, {rollBack, 5}, {scaleOut, 2}, {scaleIn, 2}, {cancelDelete, 4},
			{markDeleted, 2}, {deletePods, 2}, {forceDelete, 2}, {turnUnready, 4}, {movePods, 3}, {describePods, 3},
		},
		workEvery: 1200 * time.Millisecond,
		faults:    lasting,
		dealt:     3,
		blows:     []kind{killManager, stopManager, pauseManager, restartServer, wipeHalf, addForeign},
		// So three storms, one of each theme, have them all.
		blowsPerStorm: 2,
		always:        []kind{killAtAnswer, killManager, killStandby, killStandby, loseApps, moveAll}, // two, so that somebody works too
		last:          []kind{wipeHalf, addForeign, leaveEntries, leaveTheirs, announceEnd},
		themes:        []func(*planner){anything, races, handovers},
	}
}

// clusterPlan has the faults of a cluster and of the network before it, and what needs one registry only.
func clusterPlan(seed uint64, workloads int) planner {
	p := fullPlan(seed, workloads)
	p.faults = append([]kind{netSlow, netCut, upgradeServers}, clusterFaults...)
	p.dealt = 4
	p.blows = []kind{killManager, stopManager, pauseManager, restartServer}
	p.always, p.last = []kind{killAtAnswer, killManager, killStandby, killStandby, wrongClock}, nil
	stay := func(p *planner) {
		p.work = slices.DeleteFunc(slices.Clone(p.work), func(s share) bool { return s.kind == movePods || s.kind == describePods })
	}
	stay(&p)
	for i, theme := range p.themes {
		p.themes[i] = func(p *planner) {
			theme(p)
			stay(p)
			p.favoured = nil
		}
	}
	return p
}

// anything has the API server away too.
func anything(p *planner) { p.always = append(slices.Clone(p.always), restartServer) }

// races have pods move on while calls are under way.
func races(p *planner) {
	p.work = []share{
		{rollBack, 5}, {cancelDelete, 4}, {update, 3}, {markDeleted, 1}, {forceDelete, 1}, {turnUnready, 1}, {movePods, 3}, {describePods, 1},
	}
	p.workEvery = 500 * time.Millisecond
	p.favoured = []kind{netSlow, loseAnswers, holdBack}
	p.always = append(slices.Clone(p.always), pauseManager)
}

// handovers have one manager go on where another was stopped, with calls of that on their way.
func handovers(p *planner) {
	p.favoured = []kind{holdBack, loseAnswers, netSlow, netCut}
	p.always = append(slices.Clone(p.always), stopManager, stopManager, stopManager)
}

// maxRemovals is what the managers' configuration says of it: in half of the plans nothing, for the default.
func (p planner) maxRemovals() string {
	if p.removals == "" && p.seed%2 == 1 {
		return "60%"
	}
	return p.removals
}

// noRemovals is a limit with which each removal waits for a person.
const noRemovals = "0"

// fewest is how many storms are played also where calms take long on a busy machine: one of each theme, which have every kind
// of fault, in a run that is held to that.
func (p planner) fewest(length time.Duration) int {
	if length < enoughTime {
		return 1
	}
	return max(1, len(p.themes))
}

// round returns the storm of a round, in the order of time.
func (p planner) round(number int) []action {
	if len(p.themes) > 0 {
		p.themes[number%len(p.themes)](&p)
	}
	rng := rand.New(rand.NewPCG(p.seed, uint64(number)))
	var all []action
	add := func(at time.Duration, k kind) {
		all = append(all, action{
			at: at, kind: k, workload: rng.IntN(p.workloads), count: 1 + rng.IntN(4), lasts: p.lasts(rng, k), dice: rng.Uint64(),
		})
	}
	work := deck{seed: rng.Uint64(), cards: cardsOf(p.work)}
	for i, at := 0, time.Duration(0); at < p.storm; i, at = i+1, at+jitter(rng, p.workEvery) {
		add(at, work.card(i))
	}
	for i, at := 0, jitter(rng, faultJitter); at < p.storm && len(p.faults) > 0; i++ {
		add(at, p.fault(rng, number, i))
		at += all[len(all)-1].lasts + faultGap + jitter(rng, faultJitter)
	}
	blows := slices.Clone(p.always)
	for i := range p.blowsPerStorm {
		blows = append(blows, deck{p.seed, streamOfBlows, p.blows}.card(number*p.blowsPerStorm+i))
	}
	rng.Shuffle(len(blows), func(i, j int) { blows[i], blows[j] = blows[j], blows[i] })
	for i, k := range blows {
		slot := p.storm / time.Duration(len(blows))
		add(time.Duration(i)*slot+time.Duration(rng.Int64N(int64(slot))), k)
	}
	for _, k := range p.last {
		add(p.storm, k)
	}
	slices.SortStableFunc(all, func(a, b action) int { return int(a.at - b.at) })
	return all
}

// fault is the i-th of the registry's that last in a round. How many the deck deals in a round is left to the dice; the next
// round goes on after those that every round has, whatever it favours.
func (p planner) fault(rng *rand.Rand, number, i int) kind {
	if len(p.favoured) > 0 {
		if i%2 == 1 {
			return p.favoured[rng.IntN(len(p.favoured))]
		}
		i /= 2
	}
	return deck{p.seed, streamOfFaults, p.faults}.card(number*p.dealt + i)
}

// cardsOf is a deck with each kind as often as its share says.
func cardsOf(shares []share) []kind {
	var cards []kind
	for _, s := range shares {
		cards = append(cards, slices.Repeat([]kind{s.kind}, s.of)...)
	}
	return cards
}

// lasts draws how long an action lasts.
func (p planner) lasts(rng *rand.Rand, k kind) time.Duration {
	switch {
	case k.takesTurns() && k != upgradeServers, k == turnUnready:
		return shortestFault + time.Duration(rng.Int64N(int64(longestFault-shortestFault)))
	case k == pauseManager:
		return pastLease
	default:
		return 200*time.Millisecond + time.Duration(rng.Int64N(int64(4*time.Second)))
	}
}

// jitter is from half of d to one and a half of it.
func jitter(rng *rand.Rand, d time.Duration) time.Duration {
	return d/2 + time.Duration(rng.Int64N(int64(d)+1))
}
