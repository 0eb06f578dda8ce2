"""The frontier: every URL that is known and not finished, in Redis, moved by Lua steps.

Front queues carry priority, back queues (one a host) carry politeness; after Mercator (Heydon, Najork: "Mercator: A Scalable, Extensible
Web Crawler", 1999). A host's next-allowed time stands beside its queue and moves only inside a step, so two workers cannot break it.

Where a URL is, and what moves it:

    place    key                from                                      to
    inline   front:<k>          enqueue (unknown or idle host)            promote → back
    park     park:<host>        enqueue (host waits, or back is full)     promote, lease, complete (refill) → back
    back     back:<host>        enqueue (active host), refill, release    lease → leased
    wait     wait               complete r, w (a time of its own)         lease → back
    leased   leased, leases     lease                                     complete → done, dead, back, wait; reclaim → back, dead
    dead     dead               complete x, r; reclaim; dead host         (kept)

Where a host with URLs is (`s` in host:<host>; a host whose URLs all wait by themselves is in none):

    w waiting    a token with serial t stands in front queue k            promote → r, a
    r ready      in `ready` at its next-allowed time                      lease → f
    a asleep     in `asleep`: its time is over 60 s away, or it rests     lease (due) → r
    f in flight  one of its URLs is leased                                complete, reclaim → r, a, w (end of its quantum), none

Invariants, checked by `Frontier.audit` and the model-based test:

* a URL stands in one place, a host in one; a host in flight has one lease;
* enqueued - done = URLs in all places but dead;
* the next lease of a host carries a not-before that is at least the delay after the end of the request before;
* a released URL gets its exact place back (its score).

Every call is repeatable: it carries (worker, number), and the partition gives the last answer again.
"""
