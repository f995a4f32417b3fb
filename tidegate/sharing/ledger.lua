-- The books of all replicas: one call applies a batch of operations, or none.
--
-- KEYS: 1 meta     hash: epoch, began (when the epoch did), last (when the last call was), hold (no lease ends before),
--                  since (when the last silence of all ended)
--       2 used     hash: account -> "used at kind amount capacity"; kind m(inute), d(ay), f (in flight)
--       3 held     hash: request -> "day input output account unit account unit ..."; unit r(equests), i, o, t(okens)
--       4 leases   sorted set: request, by when its lease ends
--       5 replicas hash: replica -> "seen number call"; number: the last telling of it that was taken; call: its last call
--       6 inflight hash: replica -> "seen told"; told: what it has in flight (see inflight.py)
-- ARGV: 1 replica, 2 the epoch that it knows, 3 a new epoch if one is needed, 4 not after (0: at any time),
--       5 lease (seconds), 6 the operations (JSON), 7 the number of this call, 8 of the last one that was answered
-- Returns state, epoch, its age, now, replicas, those of them that are here, then a result for each operation.
-- state: "ok"; "late": it is past "not after", and nothing was done; "epoch": the replica knows another one, likewise.
--
-- Time is Redis's own, in seconds since the epoch of clocks.
local GAP = 5           -- seconds without any call after which no lease ends for a whole lease: nobody could renew
local SEEN = 10         -- seconds for which a replica counts after it was heard
local HERE = 2.5        -- seconds for which it is here, unless all were silent since
local SILENCE = 1.2     -- seconds without any call after which all were: each calls once a second
local FORGET = 3600     -- seconds after which one is forgotten, and an account of which nothing is used
local KEEP = 691200     -- seconds for which everything outlives the last call
local REAP = 100        -- leases that are ended in one call
local DAY = 86400

local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local day = math.floor(now / DAY)
local lease = tonumber(ARGV[5])

local function text(number) return string.format('%.6f', number) end

-- What is stored may have been written by anybody. Words that are no numbers, or not finite ones, are nil; what they
-- stand in is as if it were not there, and costs nothing else.
local function finite(word)
  local number = tonumber(word or '')
  if number and number > -math.huge and number < math.huge then return number end
  return nil
end

-- Times are not later than now: a clock that went back must not hold anything up.
local function past(word, otherwise)
  return math.min(finite(word) or otherwise, now)
end

local meta = redis.call('HMGET', KEYS[1], 'epoch', 'began', 'last', 'hold', 'since')
local not_after = tonumber(ARGV[4])
if not_after > 0 and now > not_after then return {'late', meta[1] or '', '0', text(now), '0', '0'} end

local epoch, began = meta[1], past(meta[2], now)
if not epoch then
  epoch, began = ARGV[3], now
  redis.call('HSET', KEYS[1], 'epoch', epoch, 'began', text(now))
end
local last, hold = finite(meta[3]) or now, math.min(finite(meta[4]) or 0, now + lease)
local since = past(meta[5], 0)
if now - last > SILENCE then
  since = now
  redis.call('HSET', KEYS[1], 'since', text(since))
end
if now - last > GAP then
  hold = now + lease
  redis.call('HSET', KEYS[1], 'hold', text(hold))
end
redis.call('HSET', KEYS[1], 'last', text(now))

local told, last_call = -1, 0
local replicas, here = 1, 1
local all = redis.call('HGETALL', KEYS[5])
for at = 1, #all, 2 do
  local seen, number, call = string.match(all[at + 1], '^(%S+) (%S+) (%S+)$')
  seen, number, call = finite(seen), finite(number), finite(call)
  if all[at] == ARGV[1] then
    told, last_call = number or -1, call or 0
  elseif not (seen and number and call) or math.abs(now - seen) > FORGET then
    redis.call('HDEL', KEYS[5], all[at])
  elseif now - seen <= SEEN then
    replicas = replicas + 1
    if seen >= math.max(since, now - HERE) then here = here + 1 end
  end
end

if epoch == ARGV[2] and last_call < tonumber(ARGV[8]) then
  -- What was answered is not here: this is an older memory, or that of another. Begin a new one, which all tell again.
  redis.call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[5])
  epoch, began, replicas, here = ARGV[3], now, 1, 1
  redis.call('HSET', KEYS[1], 'epoch', epoch, 'began', text(now))
end

local reply = {'ok', epoch, text(now - began), text(now), tostring(replicas), tostring(here)}
if epoch ~= ARGV[2] then
  reply[1] = 'epoch'
  redis.call('HSET', KEYS[5], ARGV[1], text(now) .. ' -1 ' .. ARGV[7])
  return reply
end

-- accounts

local book, changed = {}, {}

local function stored(name)
  if book[name] then return book[name] end
  local value = redis.call('HGET', KEYS[2], name)
  if not value then return nil end
  local used, at, kind, amount, capacity = string.match(value, '(%S+) (%S+) (%S+) (%S+) (%S+)')
  local one = {used = finite(used), at = finite(at), kind = kind, amount = finite(amount), capacity = finite(capacity)}
  if not (one.used and one.at and one.amount and one.capacity) then return nil end
  one.touched = one.at
  if kind == 'm' and now > one.at then
    one.used = math.max(0, one.used - (now - one.at) * one.amount / 60)
  elseif kind == 'd' then
    local days = day - math.floor(one.at / DAY)
    if days > 0 then one.used = math.max(0, one.used - days * one.capacity) end
  end
  -- A clock that goes back gives nothing back, and goes on from there; but no day comes twice.
  one.at = kind == 'd' and math.max(one.at, now) or now
  book[name] = one
  return one
end

-- spec: {name, kind, amount, capacity}
local function account(spec)
  local one = stored(spec[1])
  if not one then
    one = {used = 0, at = now}
    book[spec[1]] = one
  end
  one.kind, one.amount, one.capacity = spec[2], spec[3], spec[4]
  return one
end

local function take(name, amount)
  book[name].used = math.max(0, book[name].used + amount)
  changed[name] = true
end

-- requests

local function of(unit, input, output)
  if unit == 'r' then return 1 end
  if unit == 'i' then return input end
  if unit == 'o' then return output end
  return input + output
end

-- Give back what a request held (no input), or correct it by what it used; return whether it held anything.
local function finish(request, input, output)
  local record = redis.call('HGET', KEYS[3], request)
  if not record then return '0' end
  redis.call('HDEL', KEYS[3], request)
  redis.call('ZREM', KEYS[4], request)
  local since, had_input, had_output, rest = string.match(record, '(%S+) (%S+) (%S+)(.*)')
  had_input, had_output = finite(had_input), finite(had_output)
  if not (finite(since) and had_input and had_output) then return '0' end
  for name, unit in string.gmatch(rest, '(%S+) (%S+)') do
    local one = stored(name)
    if one then
      local back = -of(unit, had_input, had_output)
      if input and one.kind ~= 'f' then
        back = back + of(unit, input < 0 and had_input or input, output < 0 and had_output or output)
      end
      if back > 0 or one.kind ~= 'd' or tonumber(since) == day then take(name, back) end
    end
  end
  return '1'
end

local function record(request, input, output, specs)
  local words = {day, input, output}
  for _, spec in ipairs(specs) do
    words[#words + 1] = spec[1]
    words[#words + 1] = spec[5]
  end
  redis.call('HSET', KEYS[3], request, table.concat(words, ' '))
  redis.call('ZADD', KEYS[4], text(now + lease), request)
end

if now >= hold then
  for _, request in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', text(now), 'LIMIT', 0, REAP)) do
    finish(request)
    redis.call('ZREM', KEYS[4], request)
  end
end

-- operations

local operations = {}

-- specs: {name, kind, amount, capacity, unit}
function operations.reserve(request, input, output, specs)
  local granted = redis.call('HEXISTS', KEYS[3], request) == 0
  for _, spec in ipairs(specs) do
    local one, needed = account(spec), of(spec[5], input, output)
    if needed > 0 and one.used + needed > one.capacity then granted = false end
  end
  local words = {granted and '1' or '0'}
  for _, spec in ipairs(specs) do
    if granted then take(spec[1], of(spec[5], input, output)) end
    words[#words + 1] = text(book[spec[1]].used)
  end
  if granted then record(request, input, output, specs) end
  return table.concat(words, ' ')
end

-- A negative number stands for what was expected.
function operations.settle(request, input, output) return finish(request, input, output) end

function operations.release(request) return finish(request) end

-- What a replica used and holds without our knowledge; debts: {name, kind, amount, capacity, used}.
function operations.tell(number, debts, requests)
  if number <= told then return '0' end
  told = number
  -- They may have been reserved by calls whose answers were lost; that comes back before the debts are counted.
  for _, held in ipairs(requests) do finish(held[1]) end
  for _, debt in ipairs(debts) do
    local one = account(debt)
    -- A debt beyond the whole is none of those who could not ask; one that is there already stays.
    take(debt[1], math.max(0, math.min(debt[5], one.capacity - one.used)))
  end
  for _, held in ipairs(requests) do
    for _, spec in ipairs(held[4]) do
      account(spec)
      if spec[2] == 'f' then take(spec[1], of(spec[5], held[2], held[3])) end
    end
    record(held[1], held[2], held[3], held[4])
  end
  return '1'
end

-- Renew leases; return those of which nothing is known (any more).
function operations.renew(requests)
  local gone = {}
  for _, request in ipairs(requests) do
    if redis.call('HEXISTS', KEYS[3], request) == 1 then
      redis.call('ZADD', KEYS[4], text(now + lease), request)
    else
      gone[#gone + 1] = request
    end
  end
  return table.concat(gone, ' ')
end

-- Return what is used; and sweep a few accounts that nobody uses any more.
function operations.look(specs)
  local words = {}
  for _, spec in ipairs(specs) do words[#words + 1] = text(account(spec).used) end
  if redis.call('EXISTS', KEYS[2]) == 1 then
    for _, name in ipairs(redis.call('HRANDFIELD', KEYS[2], 10)) do
      local one = stored(name)
      if not one or (one.used == 0 and not changed[name] and one.touched and now - one.touched > FORGET) then
        redis.call('HDEL', KEYS[2], name)
      end
    end
  end
  for at = 1, 5 do redis.call('EXPIRE', KEYS[at], KEEP) end
  return table.concat(words, ' ')
end

-- Take in what this replica has in flight, and return what the others told in the last `seconds`, a word each, as far as
-- `most` characters hold it. One that leaves is forgotten like one that died: what it sent is there for longer.
function operations.inflight(told, seconds, most)
  if told == '' then
    redis.call('HDEL', KEYS[6], ARGV[1])
  else
    redis.call('HSET', KEYS[6], ARGV[1], text(now) .. ' ' .. told)
  end
  local words, size = {}, 0
  local all = redis.call('HGETALL', KEYS[6])
  for at = 1, #all, 2 do
    if all[at] ~= ARGV[1] then
      local seen, theirs = string.match(all[at + 1], '^(%S+) (%S+)$')
      -- A clock that went back makes old ones look new.
      if not finite(seen) or math.abs(now - finite(seen)) > seconds then
        redis.call('HDEL', KEYS[6], all[at])
      elseif size + #theirs <= most then
        size = size + #theirs
        words[#words + 1] = theirs
      end
    end
  end
  redis.call('EXPIRE', KEYS[6], 60)
  return table.concat(words, ' ')
end

function operations.leave()
  redis.call('HDEL', KEYS[5], ARGV[1])
  told = nil
  return '1'
end

for _, operation in ipairs(cjson.decode(ARGV[6])) do
  reply[#reply + 1] = operations[operation[1]](unpack(operation, 2))
end
if told then redis.call('HSET', KEYS[5], ARGV[1], text(now) .. ' ' .. tostring(told) .. ' ' .. ARGV[7]) end
for name in pairs(changed) do
  local one = book[name]
  redis.call('HSET', KEYS[2], name, table.concat({
    text(one.used), text(one.at), one.kind, string.format('%.0f', one.amount), string.format('%.0f', one.capacity)
  }, ' '))
end
return reply
