local fingerprint, token, lease, on_lost, lost_keep, begun_by = unpack(ARGV, 1, 6)
local operation, key, principal = unpack(ARGV, 7, 9)
local now = now_ms()
local verdict, found = judge(fingerprint, token, now)

if found == 'clock set back' then
  -- Counting from now, the owner has one whole lease to show that it is alive, and a dead one blocks the key no longer.
  grant(integer(verdict[2]), redis.call('HGET', KEYS[1], 'on_lost'), lost_keep, now)
end
if verdict[1] ~= 'claim' then
  return verdict
end

if found == 'own' then
  -- Two begins of one call share this claim now, and either may have been answered. Neither may give it back.
  if redis.call('HGET', KEYS[1], 'begun_by') ~= begun_by then
    redis.call('HDEL', KEYS[1], 'begun_by')
  end
else
  local fields = { 'token', token, 'attempt', integer(verdict[2]), 'begun_by', begun_by }
  if found ~= 'lost' then
    for _, field in ipairs({ 'fingerprint', fingerprint, 'operation', operation, 'key', key,
      'created_at', integer(now) }) do
      table.insert(fields, field)
    end
    if principal then
      table.insert(fields, 'principal')
      table.insert(fields, principal)
    end
  end
  if found == 'expired' then
    redis.call('DEL', KEYS[1])
  end
  -- The first write of a new claim, and one that Redis refuses when memory is full.
  redis.call('HSET', KEYS[1], unpack(fields))
end
grant(lease, on_lost, lost_keep, now)
return verdict
