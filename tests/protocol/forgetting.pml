/* Launchers that forget: in clusters and allocations a launcher may be started again without what it kept.

   docs/protocol.md says what they do then (rule 13), and what this model leaves out. test_forgetting.py says with how
   many nodes and with which planted bugs SPIN searches all its states. launchers.pml is the model of the other rules.

   Each node has one launcher at a time. It has a name of its own, here a number, and enters only newer orders. A launcher
   that is not there, that is paused, or that nobody hears, is one that makes no step. A lease that is over ends
   processes, as a failure does. */

#ifndef N
#define N 2 /* nodes of the job */
#endif
#ifndef LOSSES
#define LOSSES 2 /* how often, in all, a launcher is started again: at most twice */
#endif
#ifndef GENERATIONS
#define GENERATIONS 2 /* of launchers after the base; two launchers may begin another one each, which differ in their id */
#endif

#define LINKS (N * N)
#define BASE 0
#define ORDERS (1 + 3 * GENERATIONS)
#define generation(o) ((o + 2) / 3)
#define last(o) (generation(o) == GENERATIONS)

/* States of a launcher. */
#define WAITS 0  /* its node has not begun in its order */
#define RUNS 1
#define FAILED 2 /* it may begin the next order */

byte order[N];
byte state[N];
byte name[N];
bit met[N];           /* whether it has met the others in its order */
byte heard[LINKS];    /* the launcher of each of them: the last one that it has heard in its order; then, the one it has met */
bit met_by[LINKS];    /* whether that one has said that it has met this launcher */
byte late[LINKS];     /* of what each node has said to each other one: a message that may still come, and more than once */

bit there[ORDERS];    /* which orders were ever made */
short began[ORDERS];  /* in which order which node has begun, and whose launcher of then is there still, as bits */
byte losses = LOSSES; /* how many are left */

byte p, q, i, rounds, newest, following; /* of the step that is being made */
bit good;

#define at(x, y) (x * N + y)
#define bit_of(x, y) (1 << at(x, y))

/* What a launcher says to another one: its order, its name, and which launcher of that node it has met. */
#define knows(x, y) (met[x] * heard[at(x, y)]) /* 0: none */
#define message(x, y) (order[x] * 16 + name[x] * 4 + knows(x, y))
#define order_of(m) (m / 16)
#define name_of(m) ((m / 4) % 4)
#define known_of(m) (m % 4)

inline enter(x, o) {
  order[x] = o; state[x] = WAITS; met[x] = 0;
  for (i : 0 .. N - 1) { heard[at(x, i)] = 0; met_by[at(x, i)] = 0 }
}

/* x hears what y has said, now or earlier. It meets all others at once, when it has heard all, and then no other one. */
#ifdef BUG_MEETS_AGAIN
#define may_meet(x, y) (!met[x] || (state[x] == WAITS && name[y] != heard[at(x, y)])) /* before its own node has begun */
#else
#define may_meet(x, y) (!met[x])
#endif
#ifdef BUG_STAYS
#define is_lost(x, y, m) false
#else
#ifdef BUG_LOST_TO_RUNNING
#define is_lost(x, y, m) (known_of(m) && known_of(m) != name[x] && state[y] == RUNS)
#else
#define is_lost(x, y, m) (known_of(m) && known_of(m) != name[x])
#endif
#endif
#ifdef BUG_NONE_MET
#define says_met(x, y, m) (name_of(m) == heard[at(x, y)] && (known_of(m) == name[x] || !known_of(m)))
#else
#ifdef BUG_ANY_LAUNCHER
#define says_met(x, y, m) (known_of(m) == name[x])
#else
#define says_met(x, y, m) (name_of(m) == heard[at(x, y)] && known_of(m) == name[x])
#endif
#endif
inline hear(x, y, m) {
  if
  :: order_of(m) == order[x] ->
    if :: may_meet(x, y) -> heard[at(x, y)] = name_of(m) :: else fi;
    met[x] = 1;
    for (i : 0 .. N - 1) { if :: i != x && !heard[at(x, i)] -> met[x] = 0 :: else fi };
    if
    :: state[x] == WAITS && is_lost(x, y, m) -> state[x] = FAILED
    :: else -> if :: met[x] && says_met(x, y, m) -> met_by[at(x, y)] = 1 :: else fi
    fi
  :: else
  fi
}

#ifdef BUG_UNMET
#define must_be_met(x) (order[x] != BASE)
#else
#define must_be_met(x) true
#endif
/* A node begins once all others have met its launcher. */
inline begin(x) {
  good = state[x] == WAITS;
  for (i : 0 .. N - 1) { if :: i != x && must_be_met(x) && !met_by[at(x, i)] -> good = 0 :: else fi };
  if
  :: good ->
    state[x] = RUNS;
    for (i : 0 .. N - 1) {
      if
      :: i != x ->
        assert(!(began[order[x]] & bit_of(x, i)));
        if :: name[i] == heard[at(x, i)] -> began[order[x]] = began[order[x]] | bit_of(x, i) :: else fi
      :: else
      fi
    }
  :: else
  fi
}

/* A launcher whose node has failed begins the next order, once it has heard all others in this one. */
inline propose(x, id) {
  good = state[x] == FAILED && !last(order[x]);
  for (i : 0 .. N - 1) { if :: i != x && !heard[at(x, i)] -> good = 0 :: else fi };
  following = 3 * generation(order[x]) + 1 + id;
  if :: good && !there[following] -> there[following] = 1; enter(x, following) :: else fi
}

/* A launcher is started again, with what it kept or without. If no other one that has seen it begin is left, none can
   know that it has. */
inline come_back(x, keeps) {
  losses--; name[x]++;
  if :: keeps -> enter(x, order[x]); state[x] = FAILED :: else -> enter(x, BASE) fi;
  for (q : 0 .. ORDERS - 1) {
    for (i : 0 .. N - 1) { if :: i != x -> began[q] = began[q] & ~bit_of(i, x) :: else fi }
  }
}

/* From now on all messages arrive at once, and nothing fails any more: after a while all train, or have failed in the
   last order of the model. One fair schedule is played. */
inline heal() {
  for (rounds : 0 .. 2 * GENERATIONS + 1) {
    newest = BASE;
    for (p : 0 .. N - 1) { if :: order[p] > newest -> newest = order[p] :: else fi };
    for (p : 0 .. N - 1) { if :: order[p] < newest -> enter(p, newest) :: else fi };
    for (following : 0 .. 2) { /* All have heard all after the first time, know it after the second one, … */
      for (p : 0 .. N - 1) {
        for (q : 0 .. N - 1) { if :: p != q -> hear(p, q, message(q, p)) :: else fi }
      }
    };
    for (p : 0 .. N - 1) { begin(p) };
    for (p : 0 .. N - 1) { propose(p, 2) }
  };
  good = 1;
  for (p : 0 .. N - 1) { if :: state[p] != RUNS || order[p] != order[0] -> good = 0 :: else fi };
  for (p : 0 .. N - 1) { if :: last(order[p]) && state[p] == FAILED -> good = 1 :: else fi }
}

/* Two nodes run in one order only if each has met the launcher of the other. */
inline check() {
  for (p : 0 .. N - 1) {
    for (q : 0 .. N - 1) {
      if
      :: p != q && state[p] == RUNS && state[q] == RUNS && order[p] == order[q] -> assert(heard[at(p, q)] == name[q])
      :: else
      fi
    }
  }
}

/* What x says to y may come late, from now on. Of three nodes, one message is late at a time. */
inline delay(x, y) {
#if N > 2
  for (i : 0 .. LINKS - 1) { late[i] = 0 };
#endif
  late[at(x, y)] = message(x, y)
}

#define STEP(condition, effect) \
  :: d_step { \
    (condition) -> effect; \
    check(); \
    p = 0; q = 0; i = 0; rounds = 0; newest = 0; following = 0; good = 0 \
  }

#define ENTER(x, o) STEP(there[o] && o > order[x], enter(x, o))
#if GENERATIONS > 1
#define ENTER_SECOND(x) ENTER(x, 4) ENTER(x, 5)
#else
#define ENTER_SECOND(x)
#endif
/* Nodes are alike: the one whose launcher is started again first is node 0, and the next one node 1. */
#define may_be_lost(x) (losses && (x == 0 || (x == 1 && losses < LOSSES)))
#define OF_NODE(x) \
  ENTER(x, 1) ENTER(x, 2) ENTER_SECOND(x) \
  STEP(state[x] == WAITS, begin(x)) \
  STEP(state[x] == FAILED, propose(x, 0)) \
  STEP(state[x] == FAILED, propose(x, 1)) \
  STEP(state[x] == RUNS && !last(order[x]), state[x] = FAILED) \
  STEP(may_be_lost(x), come_back(x, 0)) \
  STEP(may_be_lost(x), come_back(x, 1))
#define OF_LINK(x, y) \
  STEP(order[y] == order[x], hear(x, y, message(y, x))) \
  STEP(late[at(y, x)] && order_of(late[at(y, x)]) == order[x], hear(x, y, late[at(y, x)])) \
  STEP(losses, delay(y, x))

active proctype world() {
  d_step {
    there[BASE] = 1;
    for (p : 0 .. N - 1) { name[p] = 1; enter(p, BASE) };
    p = 0; i = 0
  }
  do
  OF_NODE(0) OF_NODE(1) OF_LINK(0, 1) OF_LINK(1, 0)
#if N > 2
  OF_NODE(2) OF_LINK(0, 2) OF_LINK(1, 2) OF_LINK(2, 0) OF_LINK(2, 1)
#endif
#ifdef PROGRESS
  :: d_step { true -> heal(); assert(good) } -> break
#endif
  od;
#ifdef PROGRESS
  skip;
  d_step { /* What follows is certain: all of it is one state. */
    for (p : 0 .. N - 1) { order[p] = 0; state[p] = 0; name[p] = 0; met[p] = 0 };
    for (p : 0 .. LINKS - 1) { heard[p] = 0; met_by[p] = 0; late[p] = 0 };
    for (p : 0 .. ORDERS - 1) { there[p] = 0; began[p] = 0 };
    losses = 0; p = 0; q = 0; i = 0; rounds = 0; newest = 0; following = 0; good = 0
  }
#endif
}
