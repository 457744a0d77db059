/* Who begins the next generation, and when a node may run at its new place.

   docs/protocol.md describes the protocol, names the invariants, and says what this model leaves out. model.py compiles
   the model for a number of nodes, with a planted bug or with none, and SPIN searches all its states.

   Node 0 has two places: its first host A, and the spare B. All other nodes stay where they are. So only node 0 could
   ever run twice, and only the leases of its two launchers matter. What the clock does to them is kept as ages: of the
   last answer that each other launcher, and a supervisor, has given to A and to B. A launcher that is not there, that
   is paused, or that nobody hears, is one that makes no step. */

#ifndef N
#define N 3 /* nodes of the job; each has one launcher, and one vote */
#endif
#ifndef SUPERVISOR
#define SUPERVISOR 1 /* whether there is one at first, and others after it */
#endif
#ifndef OTHERS
#define OTHERS 1 /* whether others take over from it; otherwise it may only be gone for good */
#endif
#define T 1 /* host_timeout, in steps of the clock */
#define CAP (T + 1) /* that and the margin; a longer time makes no difference */
#define PLACES (N + 1)
#define A 0
#define B N

/* Orders. Each launcher has one, and goes over only to a newer one. */
#define G 0  /* begun by a supervisor */
#define Y1 1 /* begun by launchers after G */
#define Y2 2 /* begun by launchers after Y1 */
#define P 3  /* a command's stop for a change, by one that knows of no move */
#define R 4  /* begun by launchers after P, as the change does not come */
#define M 5  /* begun by launchers after G, Y1, Y2 or R: a move of node 0 to B */
#define E 6  /* begun by launchers after any of these but P: the end of a job that is beyond help */
#define X 7  /* the next of a supervisor, whatever it knew: a move of node 0 to B, a restart in place, or a stop */
#define Z 8  /* begun by launchers after X */
#define F 9  /* likewise: the end of the job */
#define ORDERS 10
#ifndef PAUSES
#define PAUSES 0 /* whether a command may begin P */
#endif
#ifndef ENDS
#define ENDS 0 /* whether launchers may begin E and F */
#endif
#ifndef HOT
#define HOT 0 /* whether B is a hot spare, so that launchers may begin M */
#endif
#define by_launchers(o) (o == Y1 || o == Y2 || o == R || o == M || o == Z)
#define last(o) (o == Y2 || o == R || o == M || o == Z) /* the model has no generation after these, but M */

/* States of a launcher. Those of the nodes that stay begin at once: what holds them up can only hold up others. */
#define IDLE 0   /* has no part in its order */
#define WAITS 1  /* has not begun it */
#define TRAINS 2
#define FAILED 3 /* its processes ended, or were ended as the lease was over, or its container is a new one */

bit there[ORDERS]; /* which orders were ever made */
bit moves;         /* whether X has node 0 at B */
bit after_m;       /* whether that is because its author knew that node 0 had begun there in M */
bit stops;         /* whether X is a stop */
bit ends_moved;    /* whether E has node 0 at B, as the order that it ends had */
byte number = 7;   /* BUG_NUMBER: the number of X */

byte order[PLACES];
byte state[PLACES];
byte age_a[PLACES];  /* since this launcher last answered A, in whatever order */
bit vote_a[PLACES];  /* whether that was in the order that A has now */
byte age_b[PLACES];  /* since this launcher last answered B in the order that B has now */
bit left_b[PLACES];  /* whether its order has node 0 at A, while the one before had it at B */
byte age_s[PLACES];  /* since a supervisor has counted on this launcher, to answer A */

bit supervised;      /* whether there is a supervisor */
bit second;          /* whether it has taken over from another, which may still be there: it needs more than half */
bit by_second;       /* whether X is of such a one */
byte known;          /* the order that it knows */
bit knew_m;          /* whether it knew M before E: it has written down where the node is since */
byte told_a = CAP;   /* since it, or one before it, last answered A */
bit sup_a;           /* whether that was in the order that A has now */
bit ran_b;           /* whether B has begun since it moved there, and since its container was started */
byte told_b = CAP;   /* since it, or one before it, last answered B in the order that B has now */

byte p, q, i, rounds, votes, newest, following; /* of the step that is being made */
bit good;

#define ends(o) (o == E || o == F)
#define moved_by_launchers(o) (o == M || (o == E && ends_moved))
#define moved(o) (moved_by_launchers(o) || (o >= X && moves))
#define home(o) (moved(o) -> B : A)
#define takes_part(x, o) (o != P && !(o == X && stops) && !ends(o) && (x == home(o) || (x > A && x < B)))
#ifdef BUG_NUMBER
#define rank(o) (o < X -> o + 1 : (o == X -> number : number + 1))
#define newer(x, y) (rank(x) > rank(y) || (rank(x) == rank(y) && x > y))
#else
#ifdef BUG_END_LOSES
#define rank(o) (o == E -> 1 : 2 * o)
#define newer(x, y) (rank(x) > rank(y))
#else
#define newer(x, y) (x > y)
#endif
#endif
#define after(o) (o == G -> Y1 : (o == Y1 -> Y2 : (o == X && !stops -> Z : o))) /* what launchers begin after it */

#ifdef BUG_HALF
#define is_second false
#else
#define is_second second
#endif

#ifdef BUG_FORGETS_ANSWERS
#define is_clear(q) true
#else
#define is_clear(q) (age_a[q] >= CAP && age_s[q] >= CAP)
#endif

/* A launcher that may keep B alive, although its order does not say that node 0 has been there. */
#ifdef BUG_FORGETS_MOVE
#define keeps_b(q) false
#else
#define keeps_b(q) (left_b[q] && age_b[q] < CAP)
#endif

/* The lease: processes may run for T from when a tick was sent that a supervisor has answered, or a strict majority of
   the launchers, with its own. Sets `good` to whether a place of node 0 has one. A node that has moved begins without
   its own vote: no launcher of the generation before has that. Where launchers have moved it, it never has one. */
inline hold(x) {
  votes = 1;
  if
  :: x == A ->
    for (i : 1 .. N - 1) { if :: vote_a[i] && age_a[i] <= T -> votes++ :: else fi };
    good = (sup_a && told_a <= T) || 2 * votes > N
  :: else ->
#ifndef BUG_OWN_VOTE
#ifdef BUG_MOVED_VOTES
    votes = ran_b;
#else
    votes = ran_b && order[B] != M;
#endif
#endif
    for (i : 1 .. N - 1) { if :: age_b[i] <= T -> votes++ :: else fi };
    good = told_b <= T || 2 * votes > N
  fi
}

inline enter(x, o) {
  left_b[x] = (o != order[x] && !moved(o) && moved_by_launchers(order[x])) || (left_b[x] && age_b[x] < CAP && !moved(o));
  order[x] = o;
  state[x] = (takes_part(x, o) -> (x == A || x == B -> WAITS : TRAINS) : IDLE);
  drop_votes(x)
}

inline drop_votes(x) { /* They were for another order. */
  if
  :: x == A -> sup_a = 0; for (i : 0 .. N) { vote_a[i] = 0 }
  :: x == B -> told_b = CAP; for (i : 0 .. N) { age_b[i] = CAP }
  :: else
  fi
}

/* q answers the tick of A or B: it is in the same order, and has not answered the node at another place for long. */
#define can_answer(q, x) (order[q] == order[x] && x == home(order[x]) && takes_part(x, order[x]))
inline answer(q, x) {
  if
  :: x == A && can_answer(q, A) && !keeps_b(q) -> age_a[q] = 0; vote_a[q] = 1
  :: x == B && can_answer(q, B) && (is_clear(q) || (order[q] >= X && after_m)) -> age_b[q] = 0
  :: else
  fi
}

/* A supervisor answers too, as long as it hears half of the job. Those that it hears are in its order, or behind.
   `heard`: which launchers that is, as bits, beside A's. */
inline supervisor_answers_a(heard) {
  votes = 1;
  for (i : 1 .. N - 1) {
    if :: (heard & (1 << i)) && !newer(order[i], known) -> votes++ :: else fi
  };
  if
  :: supervised && order[A] == known && takes_part(A, known) && (2 * votes > N || (!is_second && 2 * votes == N)) ->
#if HOT
#ifndef BUG_SUPERVISOR_AT_ONCE
    votes = 1; /* Launchers may have moved node 0: half of them have to be in this order, and not to keep B alive. */
    for (i : 1 .. N - 1) {
      if :: (heard & (1 << i)) && order[i] == known && !keeps_b(i) -> votes++ :: else fi
    };
#endif
#endif
    if
    :: 2 * votes > N || (!is_second && 2 * votes == N) ->
      told_a = 0; sup_a = 1;
#ifndef BUG_UNCONFIRMED
      for (i : 1 .. N - 1) { if :: heard & (1 << i) -> age_s[i] = 0 :: else fi } /* they have repeated its last answer */
#endif
    :: else
    fi
  :: else
  fi
}

/* A node that has moved it answers once half of the launchers have gone over, and are clear of the node's first place. */
inline supervisor_answers_b() {
  votes = 0;
  for (i : 1 .. N - 1) { if :: order[i] == known && is_clear(i) -> votes++ :: else fi };
#ifdef BUG_AT_ONCE
  votes = N;
#endif
  if
  :: supervised && order[B] == known && takes_part(B, known) &&
    (ran_b || 2 * votes > N || (!is_second && !by_second && 2 * votes == N)) ->
    told_b = 0
  :: else
  fi
}

/* Another supervisor begins: it has to hear more than half of the job, and x has the newest order that it hears. */
inline take_over(x) {
  votes = (!newer(order[A], order[x]));
  for (i : 1 .. N - 1) { if :: !newer(order[i], order[x]) -> votes++ :: else fi };
  if :: 2 * votes > N -> supervised = 1; second = 1; known = order[x] :: else fi
}

inline learn(o) {
  knew_m = (o == E && (known == M || knew_m));
  known = o
}

inline make_x(move, stop) {
  number = known + 2;
  there[X] = 1; moves = (moved_by_launchers(known) || knew_m || move); stops = stop; knew_m = 0;
  after_m = (moved_by_launchers(known) && ran_b); known = X; by_second = is_second
}

/* Processes begin with a lease; a generation of launchers, once all members have gone over to it. */
inline begin(x) {
  good = 1;
  if
  :: by_launchers(order[x]) ->
    for (i : 0 .. N) { if :: takes_part(i, order[x]) && newer(order[x], order[i]) -> good = 0 :: else fi }
  :: else
  fi;
#ifndef BUG_NO_LEASE
  if :: good && (x == A || x == B) -> hold(x) :: else fi;
#endif
  if
  :: good && state[x] == WAITS -> state[x] = TRAINS; if :: x == B -> ran_b = 1 :: else fi
  :: else
  fi
}

/* A launcher whose node has failed begins the next generation, once it has heard all others in the same one. */
inline propose(x) {
  good = state[x] == FAILED;
  for (i : 0 .. N) { if :: takes_part(i, order[x]) && order[i] != order[x] -> good = 0 :: else fi };
  following = after(order[x]);
  if :: good && following != order[x] -> there[following] = 1; enter(x, following) :: else fi
}

/* After a stop for a change that does not come, launchers go on with what it has stopped, once all are in it. */
#ifdef BUG_STOP_IS_PAUSE
#define is_pause(o) (o == P || (o == X && stops))
#else
#define is_pause(o) (o == P)
#endif
inline go_back(x) {
  following = (order[x] == P -> R : Z);
  good = is_pause(order[x]) && takes_part(x, following);
  for (i : 0 .. N) { if :: takes_part(i, following) && order[i] != order[x] -> good = 0 :: else fi };
  if :: good -> there[following] = 1; enter(x, following) :: else fi
}

/* A launcher that stays, and has answered neither node 0 nor been answered by a supervisor for long, moves node 0, once all
   others that stay are in its order. */
inline move_0(p) {
  good = age_a[p] >= CAP && age_s[p] >= CAP;
  for (i : 1 .. N - 1) { if :: order[i] != order[p] -> good = 0 :: else fi };
  if :: good -> there[M] = 1; enter(p, M) :: else fi
}

/* Where launchers would begin another order, and the policy allows none, they end the job. The order before says where. */
inline end(x) {
  following = (order[x] < E -> E : F);
  if
  :: good && !there[following] ->
    there[following] = 1; if :: following == E -> ends_moved = moved(order[x]) :: else fi;
    enter(x, following)
  :: else
  fi
}
inline give_up(x) {
  good = state[x] == FAILED;
  for (i : 0 .. N) { if :: takes_part(i, order[x]) && order[i] != order[x] -> good = 0 :: else fi };
  end(x)
}
inline give_up_lost(x) {
  good = age_a[x] >= CAP && age_s[x] >= CAP;
  for (i : 1 .. N - 1) { if :: order[i] != order[x] -> good = 0 :: else fi };
  end(x)
}

/* A container is started again. Its launcher knows what it has written down: its order. Whom it has answered it does not
   know, so it has to take it that it has answered everybody until just now. */
inline come_back(x) {
#ifdef BUG_FORGETS_ORDER
  if :: !moved(order[x]) || x != B -> order[x] = G; left_b[x] = 0 :: else fi;
#endif
#ifndef BUG_AMNESIA
  if :: x != A && x != B -> age_a[x] = 0; age_s[x] = 0 :: else fi;
#else
  age_a[x] = CAP; age_s[x] = CAP;
#endif
  vote_a[x] = 0;
  drop_votes(x);
  if :: x == B -> ran_b = 0 :: else fi;
  state[x] = (takes_part(x, order[x]) -> FAILED : IDLE)
}

inline tick() {
  for (i : 0 .. N) {
    if :: age_a[i] < CAP -> age_a[i]++ :: else fi;
    if :: age_b[i] < CAP -> age_b[i]++ :: else fi;
    if :: age_s[i] < CAP -> age_s[i]++ :: else fi
  };
  if :: told_a < CAP -> told_a++ :: else fi;
  if :: told_b < CAP -> told_b++ :: else fi;
#ifndef BUG_NO_FENCE
  if :: state[A] == TRAINS -> hold(A); if :: good :: else -> state[A] = FAILED fi :: else fi;
  if :: state[B] == TRAINS -> hold(B); if :: good :: else -> state[B] = FAILED fi :: else fi;
#endif
}

/* From now on all links are whole, and nothing fails any more: after a while all train, or all have stopped. One fair
   schedule is played. */
inline heal() {
  rounds = 0;
  do
  :: rounds < 2 * CAP + 4 + 2 * PAUSES ->
    rounds++;
    newest = G;
    for (p : Y1 .. F) { /* An order that its author alone knew is gone with it. */
      good = supervised && known == p;
      for (i : 0 .. N) { if :: order[i] == p -> good = 1 :: else fi };
      if :: there[p] && good && newer(p, newest) -> newest = p :: else fi
    };
    if :: supervised && newer(newest, known) -> learn(newest) :: else fi;
    for (p : 0 .. N) {
#ifdef BUG_NO_GOSSIP
      good = supervised;
#else
      good = 1;
#endif
      if :: good && newer(newest, order[p]) && (p != B || moved(newest) || moved_by_launchers(order[B])) -> enter(p, newest) :: else fi
    };
    for (q : 1 .. N - 1) { answer(q, A); answer(q, B) };
    supervisor_answers_a((1 << N) - 1);
    supervisor_answers_b();
    for (p : 0 .. N) { begin(p) };
    for (p : 0 .. N) { propose(p) };
#ifndef BUG_WAITS_FOR_EVER
    for (p : 0 .. N) { go_back(p) };
#endif
    tick()
  :: else -> break
  od;
  good = 1;
  for (p : 0 .. N) { if :: takes_part(p, newest) && state[p] != TRAINS -> good = 0 :: else fi };
  for (p : 0 .. N) { if :: last(newest) && state[p] == FAILED -> good = 1 :: else fi };
#if N == 2 /* One launcher is not most of two: a move that no supervisor completes waits for the next one. */
  if :: moved(newest) && !supervised && !ran_b -> good = 1 :: else fi;
#endif
  for (p : 0 .. N) { if :: ((newest == X && stops) || ends(newest)) && state[p] != IDLE -> good = 0 :: else fi };
  if :: newest == P -> good = 0 :: else fi; /* Launchers have gone on. */
  if :: there[E] && newest < E -> good = 0 :: else fi; /* It counts for good: only a supervisor has the job go on. */
}

/* What makes no difference is forgotten, and the launchers of the nodes that stay are put in order, as they are alike:
   states that differ in nothing else are one. */
#define key(x) ((((((order[x] * 4 + state[x]) * 4 + age_a[x]) * 4 + age_b[x]) * 4 + age_s[x]) * 2 + vote_a[x]) * 2 + left_b[x])
#define swap(what) i = what[q]; what[q] = what[q + 1]; what[q + 1] = i
inline forget() {
  for (i : 1 .. N - 1) { if :: age_a[i] > T -> vote_a[i] = 0 :: else fi; if :: age_b[i] >= CAP && order[i] > M -> left_b[i] = 0 :: else fi };
  left_b[A] = 0; left_b[B] = 0;
  age_a[A] = 0; age_a[B] = 0; age_b[A] = 0; age_b[B] = 0; age_s[A] = 0; age_s[B] = 0; vote_a[A] = 0; vote_a[B] = 0;
  if :: told_a > T -> sup_a = 0 :: else fi;
  if :: supervised :: else -> known = 0; knew_m = 0 fi;
  for (p : 1 .. N - 1) {
    for (q : 1 .. N - 2) {
      if
      :: key(q) > key(q + 1) -> swap(order); swap(state); swap(age_a); swap(age_b); swap(age_s); swap(vote_a); swap(left_b)
      :: else
      fi
    }
  };
  p = 0; q = 0; i = 0; votes = 0; newest = 0; rounds = 0; following = 0; good = 0
}

/* A step, if its condition holds; then what must hold after each. */
#define STEP(condition, effect) \
  :: d_step { \
    (condition) -> effect; \
    forget(); \
    assert(!(state[A] == TRAINS && state[B] == TRAINS)); \
    assert(!(stops && state[A] == TRAINS && order[A] >= X)) \
  }

#define ENTER(x, o) STEP(there[o] && newer(o, order[x]) && (x != B || moved(o) || moved_by_launchers(order[B])), enter(x, o))
#define OF_PLACE(x) \
  ENTER(x, Y1) ENTER(x, Y2) ENTER(x, P) ENTER(x, R) ENTER(x, M) ENTER(x, E) ENTER(x, X) ENTER(x, Z) ENTER(x, F) \
  STEP(ENDS && state[x] == FAILED, give_up(x)) \
  STEP(state[x] == FAILED, propose(x)) \
  STEP(PAUSES && is_pause(order[x]), go_back(x)) \
  STEP(state[x] == TRAINS && !last(order[x]), state[x] = FAILED) \
  STEP(x != B || moved(order[B]), come_back(x))
#define OF_NODE_0(x) \
  STEP(state[x] == WAITS, begin(x))
#define OF_STAYER(x) \
  STEP(can_answer(x, A) && (age_a[x] || !vote_a[x]), answer(x, A)) \
  STEP(can_answer(x, B) && age_b[x], answer(x, B)) \
  STEP(HOT && !there[M] && order[x] < M && order[x] != P, move_0(x)) \
  STEP(HOT && ENDS && !there[E] && order[x] < M && order[x] != P, give_up_lost(x)) \
  STEP(supervised && newer(order[x], known), learn(order[x])) \
  STEP(SUPERVISOR && OTHERS && !supervised, take_over(x))

active proctype world() {
  d_step {
    there[G] = 1; supervised = SUPERVISOR;
    for (p : 0 .. N) { age_a[p] = CAP; age_b[p] = CAP; age_s[p] = CAP };
    for (p : 0 .. N - 1) { enter(p, G) };
    forget()
  }
  do
  OF_PLACE(0) OF_PLACE(N) OF_NODE_0(0) OF_NODE_0(N)
  OF_PLACE(1) OF_STAYER(1)
#if N > 2
  OF_PLACE(2) OF_STAYER(2)
#endif
#if N > 3
  OF_PLACE(3) OF_STAYER(3)
#endif
  STEP(true, tick())
  STEP(PAUSES && !there[P], there[P] = 1)
  STEP(supervised, supervised = 0)
  STEP(supervised && order[B] == known, supervisor_answers_b())
#define ANSWERS_A(heard) STEP(supervised && order[A] == known, supervisor_answers_a(heard))
  ANSWERS_A(0) ANSWERS_A(2)
#if N > 2
  ANSWERS_A(4) ANSWERS_A(6)
#endif
#if N > 3
  ANSWERS_A(8) ANSWERS_A(10) ANSWERS_A(12) ANSWERS_A(14)
#endif
  /* A supervisor begins a generation. That it has not heard A for long is all that the proof needs of why it moves. */
  STEP(supervised && !there[X] && told_a >= CAP, make_x(1, 0))
  STEP(supervised && !there[X], make_x(0, 0))
  STEP(supervised && !there[X], make_x(0, 1))
#ifdef PROGRESS
  :: d_step { true -> heal(); assert(good); forget() } -> break
#endif
  od;
#ifdef PROGRESS
  skip;
  d_step { /* What follows is certain: all of it is one state. */
    for (p : 0 .. N) { order[p] = 0; state[p] = 0; age_a[p] = 0; age_b[p] = 0; age_s[p] = 0; vote_a[p] = 0; left_b[p] = 0 };
    for (p : 0 .. ORDERS - 1) { there[p] = 0 };
    moves = 0; after_m = 0; stops = 0; ends_moved = 0; knew_m = 0; number = 0; supervised = 0; second = 0; by_second = 0; known = 0; told_a = 0; told_b = 0; ran_b = 0; sup_a = 0; p = 0
  }
#endif
}
