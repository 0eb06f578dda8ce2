-- typed: moves a key outside the partitions aside, if it is not of the type that a command is for.
-- uses: time aside
--
-- KEYS[1]  key    ARGV[1] a command that reads it, such as SCARD
-- Returns  its answer

return on(KEYS[1], ARGV[1])
