"""The frontier: every URL that is known and not finished, in Redis, moved by Lua steps.

Front queues carry priority, back queues (one a host) carry politeness; after Mercator (Heydon, Najork: "Mercator: A Scalable, Extensible
Web Crawler", 1999). A host's next-allowed time stands beside its queue and moves only inside a step, so two workers cannot break it.

Where a URL is, and what moves it:

    place    key                     from                                         to
    inline   front:<k>               enqueue, requeue (unknown or idle host)      promote → back
    park     park:<host>             enqueue, requeue (host waits, back is full)  refill (promote, lease, complete) → back; cut → tail
    tail     …:tail                  enqueue, requeue (a part is on disk); cut    out → chunk; thaw (nothing is on disk) → park, inline
    chunk    a file, named in cold   out (a worker wrote it)                      in → park, inline; lost (it cannot be read) → quarantine
    back     back:<host>             enqueue, requeue (active host), refill,      lease → leased; blocked; of a dead origin: dead, wait,
                                     release, reclaim; wait                       back under its other spelling. complete n → done
    wait     wait                    complete r, w (a time of its own);           lease (due) → back
                                     of an origin dead by TLS
    blocked  wait:<host> <origin>    complete o, lease (its origin is blocked)    lease (its origin is due) → leased; as back, of a dead one
    leased   leased, leases          lease                                        complete → done, dead, back, wait, blocked;
                                                                                  reclaim → back, dead
    dead     dead                    complete x, r; reclaim; dead origin or host  requeue → as if new
    due      soon, due, later        complete with a record that has `next_at`    due → inline, park, back (its record stays)

A page that was fetched has a record (`rec:<bucket>`, lua/records.lua), written in the step that ends its lease; being due is not being
pending. The record decides: what a list of due pages names counts only while the record says that time. Pages due in days go to disk with
their records.

Letters are ways to end a lease (lua/complete.lua). A short trouble of an origin rests the host, and moves no URL (lua/trouble.lua). Inline
tokens go to disk as parked URLs do, by front:<k>:tail (lua/cold.lua, lua/spill.lua).

Where a host with URLs is (`s` in host:<host>, or for w a record in hosts:<bucket>; a host whose URLs all wait by themselves is in none):

    w waiting    a token with serial t stands in front queue k             promote → r, a, b, none
    r ready      in `ready` at its next-allowed time                       lease → f, a, b, none (its origins are dead)
    a asleep     in `asleep`: its time is over 60 s away, it rests, or     lease (due), override (pause taken back), in (what it
                 its next URLs are on disk                                 waited for) → r
    b blocked    in `asleep`: all its URLs are of blocked origins          lease (due), a URL of another origin, news of one → r, a
    f in flight  as many of its URLs are leased as may be: one, or what    complete, reclaim → r, a, b, w (end of its quantum), none
                 an override allows (their number in f)

A host that may have several leases at a time stands in `ready` beside them while it has fewer.

Invariants, checked by `Frontier.audit` and the model-based test:

* a URL stands in one place, a host in one; a host in flight has one lease, or as many as `f` says;
* enqueued - done = URLs in all places but dead;
* the next lease of a host carries a not-before that is at least the delay after the end of the request before (after its start, where
  an override allows several);
* no URL of a blocked or dead origin is leased before that is to be tried again;
* a released URL gets its exact place back (its score);
* a page that has been fetched is in one of queue, lease, due, or never due: of keys in lists of due pages one counts;
* a queue with a part on disk has a tail, and `cold` names every chunk that a queue names.

Addresses are no part of a partition: lua/ip.lua holds one for one request at a time, and tells refused hosts when to come again.

Every call is repeatable: it carries (worker, number), and the partition gives the last answer again; but a lease call that found and
changed nothing leaves no record.

A server that was started again, or another in its place, may lack the last seconds. Nobody leases from it for a while (lua/lease.lua),
and each worker asks which of its leases it knows (lua/hold.lua), lets the hosts of the others rest, and tells again what it had told
(journal.py).
"""
