local verdict = judge(ARGV[1], ARGV[2], now_ms())
return verdict
