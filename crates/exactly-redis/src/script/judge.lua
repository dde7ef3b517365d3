local ATTEMPT_MAX = 4294967295

local function remaining(expires_at, now)
  if not expires_at or expires_at == 'never' then
    return -1
  end
  return math.max(0, tonumber(expires_at) - now)
end

-- What a caller is told: a word, a number (-1 for none) and bytes. The second result says what was found.
local function judge(fingerprint, token, now)
  local stored, owner, attempt, lease, lease_until, on_lost, expires_at = unpack(redis.call('HMGET', KEYS[1],
    'fingerprint', 'token', 'attempt', 'lease', 'lease_until', 'on_lost', 'expires_at'))
  if not stored then
    return { 'claim', 1, '' }, 'absent'
  end
  -- Redis drops a key in the millisecond after its expiry.
  if remaining(expires_at, now) == 0 then
    return { 'claim', 1, '' }, 'expired'
  end
  -- Before anything else, so that a wrong payload is told so even while the first request is in flight.
  if stored ~= fingerprint then
    return { 'mismatch', remaining(expires_at, now), '' }, 'taken'
  end
  if expires_at then
    return { 'replay', remaining(expires_at, now), redis.call('HGET', KEYS[1], 'outcome') }, 'done'
  end

  attempt, lease, lease_until = tonumber(attempt), tonumber(lease), tonumber(lease_until)
  if not (owner and attempt and lease and lease_until) then
    return redis.error_reply('CORRUPT record in flight without a token, an attempt or a lease'), 'corrupt'
  end
  -- The caller's own claim: its acknowledgement was lost on the way.
  if owner == token then
    return { 'claim', attempt, '' }, 'own'
  end
  if lease_until <= now then
    if on_lost == 'rerun' then
      return { 'claim', math.min(attempt + 1, ATTEMPT_MAX), '' }, 'lost'
    end
    return { 'in-doubt', attempt, owner }, 'lost'
  end
  if lease_until - now <= lease then
    return { 'in-flight', lease_until - now, '' }, 'leased'
  end
  -- No lease lasts longer than it was granted for.
  return { 'in-flight', lease, '' }, 'clock set back'
end
