"""Pages in the form that each engine writes them, with numbers that can be told apart."""

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 6.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 4.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 3.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="deferred"} 1.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5078534031413613
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="m"} 6698.0
# TYPE vllm:prompt_tokens_created gauge
vllm:prompt_tokens_created{engine="0",model_name="m"} 1.7959760961604946e+09
# TYPE vllm:prompt_tokens_by_source_total counter
vllm:prompt_tokens_by_source_total{engine="0",model_name="m",source="local_compute"} 3690.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 1759.0
# TYPE vllm:generation_tokens_created gauge
vllm:generation_tokens_created{engine="0",model_name="m"} 1.7959760961606157e+09
# TYPE vllm:iteration_tokens_total histogram
vllm:iteration_tokens_total_bucket{engine="0",le="+Inf",model_name="m"} 300.0
vllm:iteration_tokens_total_count{engine="0",model_name="m"} 300.0
vllm:iteration_tokens_total_sum{engine="0",model_name="m"} 8457.0
# TYPE vllm:lora_requests_info gauge
vllm:lora_requests_info{max_lora="1",running_lora_adapters="b, c",waiting_lora_adapters=""} 1.795979109803419e+09
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="32",cache_dtype="auto",engine="0",hash_block_size="None",\
kv_cache_size_tokens="6144",num_cpu_blocks="None",num_gpu_blocks="192",num_gpu_blocks_override="None"} 1.0
# TYPE http_request_duration_seconds histogram"""

VLLM_TWO_RANKS = """\
vllm:num_requests_running{engine="0",model_name="m"} 6.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting{model_name="m",engine="1"} 1.0
vllm:num_requests_waiting{model_name="m",engine="0"} 4.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.75
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.25
vllm:prompt_tokens_total{engine="0",model_name="m"} 100.0
vllm:prompt_tokens_total{engine="1",model_name="m"} 50.0
vllm:generation_tokens_total{engine="0",model_name="m"} 30.0
vllm:generation_tokens_total{engine="1",model_name="m"} 20.0
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1.0
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="90"} 1.0
"""

VLLM_OLD = """\
vllm:num_requests_running{model_name="m"} 1.0
vllm:num_requests_waiting{model_name="m"} 0.0
vllm:num_requests_swapped{model_name="m"} 9.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.125
vllm:cpu_cache_usage_perc{model_name="m"} 0.5
vllm:cache_config_info{block_size="16",num_gpu_blocks="2048"} 1.0
"""

SGLANG = """\
sglang:num_running_reqs{dp_rank="0",model_name="m",tp_rank="0"} 162.0
sglang:num_queue_reqs{dp_rank="0",model_name="m",tp_rank="0"} 2826.0
sglang:token_usage{dp_rank="0",model_name="m",tp_rank="0"} 0.28
sglang:page_size{dp_rank="0",model_name="m",tp_rank="0"} 64.0
sglang:num_pages{dp_rank="0",model_name="m",tp_rank="0"} 1000.0
sglang:max_total_num_tokens{dp_rank="0",model_name="m",tp_rank="0"} 1.0
sglang:prompt_tokens_total{model_name="m"} 8.128902e+06
sglang:generation_tokens_total{model_name="m"} 7.557572e+06
"""

TGI = """\
# TYPE tgi_request_count counter
tgi_request_count 42
# TYPE tgi_queue_size gauge
tgi_queue_size 3
# TYPE tgi_batch_current_size gauge
tgi_batch_current_size 8
# TYPE tgi_batch_current_max_tokens gauge
tgi_batch_current_max_tokens 4096
"""

TRTLLM = """\
trtllm_num_requests_running{model_name="m"} 5
trtllm_num_requests_waiting{model_name="m"} 2
trtllm_kv_cache_utilization{model_name="m"} 0.4
trtllm_kv_cache_tokens_per_block{model_name="m"} 32
trtllm_kv_cache_max_blocks{model_name="m"} 1000
"""

TRITON = """\
nv_trt_llm_request_metrics{model="t",request_type="context",version="1"} 1
nv_trt_llm_request_metrics{model="t",request_type="scheduled",version="1"} 3
nv_trt_llm_request_metrics{model="t",request_type="waiting",version="1"} 7
nv_trt_llm_request_metrics{model="t",request_type="max",version="1"} 512
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per",model="t",version="1"} 64
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="t",version="1"} 500
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="free",model="t",version="1"} 1500
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="t",version="1"} 2000
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="t",version="1"} 0.26
"""

LLAMACPP = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed, excluding cached tokens
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 1253
llamacpp:prompt_tokens_cached_total 41
llamacpp:tokens_predicted_total 18
llamacpp:tokens_predicted_seconds_total 0.025774
llamacpp:n_tokens_max 383
llamacpp:requests_processing 4
llamacpp:requests_deferred 6
"""
