-- Gives the attempt in flight a lease that starts now.
--
-- A record that may be in doubt never expires. One that the next caller reruns is let go `lost_keep` after its lease
-- ended, which only makes attempts count from one again.
local function grant(lease, on_lost, lost_keep, now)
  -- Redis refuses memory to a script only before its first write, and PERSIST is one that takes none. So an owner can
  -- renew although memory is full: refusing it would turn running work into doubt and free nothing.
  redis.call('PERSIST', KEYS[1])
  local lease_until = now + tonumber(lease)
  redis.call('HSET', KEYS[1], 'lease', lease, 'lease_until', integer(lease_until), 'on_lost', on_lost)
  if on_lost == 'rerun' then
    redis.call('PEXPIREAT', KEYS[1], integer(lease_until + tonumber(lost_keep)))
  end
end
