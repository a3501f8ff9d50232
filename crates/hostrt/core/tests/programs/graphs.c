/* Captures that are asked about and steered; graphs built node by node. C and C++. */
#include <nccl.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include "check.h"

#if CUDART_VERSION >= 13000
#define EDGES NULL,
#else
#define EDGES
#endif

static void CUDART_CB append(void* to) {
  /* Runs on one stream after the other: no two at once, or the order below would differ. */
  char* text = *(char**)to;
  size_t n = strlen(text);
  text[n] = ((char*)to)[sizeof(char*)];
  text[n + 1] = 0;
}

struct letter { char* text; char what; };

static cudaGraphNode_t add_letter(cudaGraph_t graph, struct letter* l, const cudaGraphNode_t* after, size_t count) {
  struct cudaHostNodeParams p;
  cudaGraphNode_t node;
  p.fn = append;
  p.userData = l;
  CUDA(cudaGraphAddHostNode(&node, graph, after, count, &p));
  return node;
}

static void run(cudaGraphExec_t exec, char* text, const char* want) {
  cudaStream_t s;
  text[0] = 0;
  CUDA(cudaStreamCreate(&s));
  CUDA(cudaGraphLaunch(exec, s));
  CUDA(cudaStreamSynchronize(s));
  if (strcmp(text, want)) fprintf(stderr, "got %s, not %s\n", text, want);
  CHECK(!strcmp(text, want));
  CUDA(cudaStreamDestroy(s));
}

static void node_by_node(void) {
  char text[64] = "", *device;
  struct letter l[6];
  struct cudaHostNodeParams p, q;
  struct cudaMemsetParams fill;
  struct cudaMemcpy3DParms copy;
  cudaGraph_t graph, child, inner, clone;
  cudaGraphNode_t a, b, c, d, kid, found, nodes[8], from[8], to[8];
  cudaGraphExec_t exec, other;
  enum cudaGraphNodeType type;
  unsigned int on;
  size_t n;
  char from_host = 42, to_host = 0;
  int i;
  for (i = 0; i < 6; i++) { l[i].text = text; l[i].what = (char)('a' + i); }
  CUDA(cudaGraphCreate(&graph, 0));
  a = add_letter(graph, &l[0], NULL, 0);
  b = add_letter(graph, &l[1], &a, 1);
  c = add_letter(graph, &l[2], &b, 1);
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  run(exec, text, "abc");
  /* c before b: other dependencies, another order; the executable graph keeps its own. */
  CUDA(cudaGraphRemoveDependencies(graph, &b, &c, EDGES 1));
  CUDA(cudaGraphRemoveDependencies(graph, &a, &b, EDGES 1));
  CUDA(cudaGraphAddDependencies(graph, &c, &b, EDGES 1));
  CUDA(cudaGraphAddDependencies(graph, &a, &c, EDGES 1));
  CHECK(cudaGraphAddDependencies(graph, &a, &c, EDGES 1) == cudaErrorInvalidValue);
  CUDA(cudaGraphInstantiate(&other, graph, 0));
  run(other, text, "acb");
  run(exec, text, "abc");
  n = 8;
  CUDA(cudaGraphGetEdges(graph, from, to, EDGES &n));
  CHECK(n == 2);
  n = 8;
  CUDA(cudaGraphNodeGetDependencies(b, nodes, EDGES &n));
  CHECK(n == 1 && nodes[0] == c && nodes[1] == NULL);
  n = 8;
  CUDA(cudaGraphNodeGetDependentNodes(c, nodes, EDGES &n));
  CHECK(n == 1 && nodes[0] == b);
  n = 0;
  CUDA(cudaGraphGetRootNodes(graph, NULL, &n));
  CHECK(n == 1);
  CUDA(cudaGraphGetRootNodes(graph, nodes, &n));
  CHECK(nodes[0] == a);
  /* Parameters, in the graph and in what was made of it. */
  CUDA(cudaGraphHostNodeGetParams(b, &p));
  CHECK(p.fn == append && p.userData == &l[1]);
  q = p;
  q.userData = &l[4];
  CUDA(cudaGraphExecHostNodeSetParams(exec, b, &q));
  run(exec, text, "aec");
  CUDA(cudaGraphNodeSetEnabled(exec, b, 0));
  CUDA(cudaGraphNodeGetEnabled(exec, b, &on));
  CHECK(on == 0);
  run(exec, text, "ac");
  /* A graph in a graph; a copy knows its nodes. */
  CUDA(cudaGraphCreate(&child, 0));
  d = add_letter(child, &l[5], NULL, 0);
  CUDA(cudaGraphAddChildGraphNode(&kid, graph, &b, 1, child));
  CUDA(cudaGraphDestroyNode(d)); /* The graph has a copy of the child. */
  CUDA(cudaGraphChildGraphNodeGetGraph(kid, &inner));
  n = 0;
  CUDA(cudaGraphGetNodes(inner, NULL, &n));
  CHECK(n == 1);
  CUDA(cudaGraphClone(&clone, graph));
  CUDA(cudaGraphNodeFindInClone(&found, c, clone));
  CHECK(found != c);
  CUDA(cudaGraphDestroyNode(found));
  CUDA(cudaGraphExecDestroy(other));
  CUDA(cudaGraphInstantiate(&other, graph, 0));
  run(other, text, "acbf");
  CUDA(cudaGraphExecDestroy(other));
  CUDA(cudaGraphInstantiate(&other, clone, 0));
  CUDA(cudaGraphDestroy(child));
  CUDA(cudaGraphDestroy(graph));
  text[0] = 0;
  CHECK(cudaGraphNodeGetType(kid, &type) == cudaErrorInvalidValue);
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphExecDestroy(other));
  CUDA(cudaGraphDestroy(clone));
  /* Copies and fills. */
  CUDA(cudaGraphCreate(&graph, 0));
  CUDA(cudaMalloc((void**)&device, 64));
  memset(&fill, 0, sizeof fill);
  fill.dst = device;
  fill.value = 0x01020304;
  fill.elementSize = 4;
  fill.width = 4;
  fill.height = 1;
  CUDA(cudaGraphAddMemsetNode(&a, graph, NULL, 0, &fill));
  CUDA(cudaGraphAddMemcpyNode1D(&b, graph, &a, 1, device + 3, &from_host, 1, cudaMemcpyHostToDevice));
  CUDA(cudaGraphAddMemcpyNode1D(&c, graph, &b, 1, &to_host, device + 3, 1, cudaMemcpyDeviceToHost));
  CUDA(cudaGraphMemcpyNodeGetParams(c, &copy));
  CHECK(copy.extent.width == 1 && copy.srcPtr.ptr == device + 3 && copy.kind == cudaMemcpyDeviceToHost);
  memset(&fill, 0, sizeof fill);
  CUDA(cudaGraphMemsetNodeGetParams(a, &fill));
  CHECK(fill.dst == device && fill.elementSize == 4 && fill.width == 4);
  CUDA(cudaGraphNodeGetType(a, &type));
  CHECK(type == cudaGraphNodeTypeMemset);
  CUDA(cudaGraphAddEmptyNode(&d, graph, &c, 1));
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  run(exec, text, "");
  CHECK(to_host == 42 && device[0] == 4 && device[4] == 4);
  CUDA(cudaGraphExecMemcpyNodeSetParams1D(exec, c, &to_host, device, 1, cudaMemcpyDeviceToHost));
  run(exec, text, "");
  CHECK(to_host == 4);
  CHECK(cudaGraphAddKernelNode(&d, graph, NULL, 0, NULL) == cudaErrorNotSupported);
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphDestroy(graph));
  CUDA(cudaFree(device));
  cudaGetLastError();
}

/* The node's pool says on which device its memory is. */
static void memory_of_another_device(void) {
#ifdef HIP_TWIN
  hipMemAllocNodeParams p;
  hipPointerAttribute_t of;
#else
  struct cudaMemAllocNodeParams p;
  struct cudaPointerAttributes of;
#endif
  struct cudaMemPoolProps props;
  cudaMemPool_t pool;
  cudaGraph_t graph, made;
  cudaGraphNode_t node;
  cudaStream_t s;
  void* memory;
  memset(&p, 0, sizeof p);
  p.poolProps.allocType = cudaMemAllocationTypePinned;
  p.poolProps.location.type = cudaMemLocationTypeDevice;
  p.poolProps.location.id = 2;
  p.bytesize = 100;
  CUDA(cudaGraphCreate(&graph, 0));
  CUDA(cudaGraphAddMemAllocNode(&node, graph, NULL, 0, &p));
  CUDA(cudaPointerGetAttributes(&of, p.dptr));
  CHECK(of.device == 2);
  memset(&p, 0, sizeof p);
  CUDA(cudaGraphMemAllocNodeGetParams(node, &p));
  CHECK(p.poolProps.location.id == 2 && p.bytesize == 100);
  p.poolProps.location.id = 99;
  CHECK(cudaGraphAddMemAllocNode(&node, graph, NULL, 0, &p) == cudaErrorInvalidDevice);
  /* The same of memory of a pool that a capture allocates. */
  memset(&props, 0, sizeof props);
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  props.location.id = 3;
  CUDA(cudaMemPoolCreate(&pool, &props));
  CUDA(cudaStreamCreate(&s));
  CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
  CUDA(cudaMallocFromPoolAsync(&memory, 100, pool, s));
  CUDA(cudaStreamEndCapture(s, &made));
  CUDA(cudaPointerGetAttributes(&of, memory));
  CHECK(of.device == 3);
  CUDA(cudaStreamDestroy(s));
  CUDA(cudaMemPoolDestroy(pool));
  CUDA(cudaGraphDestroy(made));
  CUDA(cudaGraphDestroy(graph));
  cudaGetLastError();
}

#ifndef HIP_TWIN /* HIP's functions differ. */
/* Parameters of any kind in one struct, as newer programs pass them. */
static void any_kind(void) {
  struct cudaGraphNodeParams p;
  cudaGraph_t graph;
  cudaGraphNode_t a, b;
  cudaGraphExec_t exec;
  char text[8] = "";
  struct letter l;
  char* memory;
  l.text = text;
  l.what = 'x';
  CUDA(cudaGraphCreate(&graph, 0));
  memset(&p, 0, sizeof p);
  p.type = cudaGraphNodeTypeMemAlloc;
  p.alloc.poolProps.allocType = cudaMemAllocationTypePinned;
  p.alloc.poolProps.location.type = cudaMemLocationTypeDevice;
  p.alloc.bytesize = 100;
  CUDA(cudaGraphAddNode(&a, graph, NULL, EDGES 0, &p));
  memory = (char*)p.alloc.dptr;
  CHECK(memory != NULL);
  memset(&p, 0, sizeof p);
  p.type = cudaGraphNodeTypeHost;
  p.host.fn = append;
  p.host.userData = &l;
  CUDA(cudaGraphAddNode(&b, graph, &a, EDGES 1, &p));
  memset(&p, 0, sizeof p);
  p.type = cudaGraphNodeTypeMemFree;
  p.free.dptr = memory;
  CUDA(cudaGraphAddNode(&a, graph, &b, EDGES 1, &p));
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  run(exec, text, "x");
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphDestroy(graph));
}

#endif

static int destroyed;
static void CUDART_CB destroy(void* what) { destroyed += *(int*)what; }

static void objects(void) {
  cudaUserObject_t object;
  cudaGraph_t graph, copy;
  cudaGraphExec_t exec;
  int one = 1;
  CUDA(cudaGraphCreate(&graph, 0));
  CUDA(cudaUserObjectCreate(&object, &one, destroy, 2, cudaUserObjectNoDestructorSync));
  CUDA(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
  CUDA(cudaGraphClone(&copy, graph));
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  CUDA(cudaUserObjectRelease(object, 1));
  CUDA(cudaGraphDestroy(graph));
  CUDA(cudaGraphDestroy(copy));
  CHECK(destroyed == 0);
  CUDA(cudaGraphExecDestroy(exec));
  CHECK(destroyed == 1);
  CHECK(cudaUserObjectCreate(&object, &one, destroy, 1, 0) == cudaErrorInvalidValue);
  /* The last reference is a graph's: with it goes the handle. */
  CUDA(cudaGraphCreate(&graph, 0));
  CUDA(cudaUserObjectCreate(&object, &one, destroy, 1, cudaUserObjectNoDestructorSync));
  CHECK(cudaGraphRetainUserObject(graph, object, 2, cudaGraphUserObjectMove) == cudaErrorInvalidValue);
  CUDA(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
  CUDA(cudaGraphDestroy(graph));
  CHECK(destroyed == 2);
  CHECK(cudaUserObjectRetain(object, 1) == cudaErrorInvalidValue);
  CHECK(cudaUserObjectRelease(object, 1) == cudaErrorInvalidValue && destroyed == 2);
  cudaGetLastError();
}

/* Events that name points of captures that have ended keep nothing of their graphs. */
static void events_of_ended_captures(void) {
  cudaUserObject_t object;
  cudaGraph_t graph;
  cudaStream_t s;
  cudaEvent_t e;
  int ten = 10, round;
  CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  CUDA(cudaEventCreate(&e));
  for (round = 0; round < 3; round++) {
    enum cudaStreamCaptureStatus state;
    const cudaGraphNode_t* ends;
    unsigned long long id;
    size_t n;
    destroyed = 0;
    CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    CUDA(cudaEventRecord(e, s));
    CUDA(cudaStreamGetCaptureInfo(s, &state, &id, &graph, &ends, EDGES &n));
    CUDA(cudaUserObjectCreate(&object, &ten, destroy, 1, cudaUserObjectNoDestructorSync));
    CUDA(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
    if (round == 0) {
      CUDA(cudaStreamEndCapture(s, &graph));
      CHECK(destroyed == 0);
      CUDA(cudaGraphDestroy(graph));
    } else if (round == 1) {
      CHECK(cudaStreamSynchronize(s) == cudaErrorStreamCaptureUnsupported);
      CHECK(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureInvalidated);
    } else {
      CUDA(cudaStreamDestroy(s));
    }
    CHECK(destroyed == 10);
    CHECK(cudaEventQuery(e) == cudaErrorCapturedEvent);
  }
  CUDA(cudaEventDestroy(e));
  cudaGetLastError();
}

/* Nodes of a capture tell what the calls were given. */
static void nodes_of_captures(void) {
  struct cudaMemcpy3DParms copy;
  cudaGraph_t graph;
  cudaGraphNode_t nodes[3], node;
  cudaStream_t s;
  cudaEvent_t e, f, got = NULL;
  char *device, *host;
  size_t n = 3;
  CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  CUDA(cudaEventCreate(&e));
  CUDA(cudaEventCreate(&f));
  CUDA(cudaMalloc((void**)&device, 64));
  CUDA(cudaMallocHost((void**)&host, 64));
  CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
  CUDA(cudaMemcpyAsync(device, host, 64, cudaMemcpyHostToDevice, s));
#ifdef HIP_TWIN /* HIP's header has no names for these flags. */
  CUDA(cudaEventRecordWithFlags(e, s, 1));
  CUDA(cudaStreamWaitEvent(s, f, 1));
#else
  CUDA(cudaEventRecordWithFlags(e, s, cudaEventRecordExternal));
  CUDA(cudaStreamWaitEvent(s, f, cudaEventWaitExternal));
#endif
  CUDA(cudaStreamEndCapture(s, &graph));
  CUDA(cudaGraphGetNodes(graph, nodes, &n));
  CHECK(n == 3);
  CUDA(cudaGraphMemcpyNodeGetParams(nodes[0], &copy));
  CHECK(copy.kind == cudaMemcpyHostToDevice && copy.srcPtr.ptr == host);
  CUDA(cudaGraphEventRecordNodeGetEvent(nodes[1], &got));
  CHECK(got == e);
  CUDA(cudaGraphEventWaitNodeGetEvent(nodes[2], &got));
  CHECK(got == f);
  /* What is read can be set. */
  CUDA(cudaGraphAddMemcpyNode(&node, graph, NULL, 0, &copy));
  CUDA(cudaGraphEventRecordNodeSetEvent(nodes[1], got));
  CUDA(cudaGraphDestroy(graph));
  CUDA(cudaFree(device));
  CUDA(cudaFreeHost(host));
  CUDA(cudaEventDestroy(e));
  CUDA(cudaEventDestroy(f));
  CUDA(cudaStreamDestroy(s));
}

/* Events that a graph records for others, and waits for. */
static void events_across(void) {
  cudaGraph_t graph;
  cudaGraphNode_t a, b;
  cudaGraphExec_t exec;
  cudaEvent_t before, after, got;
  cudaStream_t s, t;
  char text[8] = "";
  struct letter l[2];
  l[0].text = l[1].text = text;
  l[0].what = 'p';
  l[1].what = 'q';
  CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  CUDA(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
  CUDA(cudaEventCreate(&before));
  CUDA(cudaEventCreate(&after));
  CUDA(cudaGraphCreate(&graph, 0));
  CUDA(cudaGraphAddEventWaitNode(&a, graph, NULL, 0, before));
  a = add_letter(graph, &l[1], &a, 1);
  CUDA(cudaGraphAddEventRecordNode(&b, graph, &a, 1, after));
  CUDA(cudaGraphEventRecordNodeGetEvent(b, &got));
  CHECK(got == after);
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  CUDA(cudaLaunchHostFunc(s, append, &l[0]));
  CUDA(cudaEventRecord(before, s));
  CUDA(cudaGraphLaunch(exec, t));
  CUDA(cudaEventSynchronize(after));
  CHECK(!strcmp(text, "pq"));
  CUDA(cudaStreamSynchronize(t));
  CUDA(cudaStreamSynchronize(s));
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphDestroy(graph));
  CUDA(cudaStreamDestroy(s));
  CUDA(cudaStreamDestroy(t));
}

static void* other_thread(void* p) {
  void* memory = NULL;
  *(cudaError_t*)p = cudaMalloc(&memory, 8);
  if (memory) cudaFree(memory);
  return NULL;
}

static cudaError_t malloc_elsewhere(void) {
  pthread_t thread;
  cudaError_t answer = cudaSuccess;
  CHECK(pthread_create(&thread, NULL, other_thread, &answer) == 0 && pthread_join(thread, NULL) == 0);
  return answer;
}

static void captures(void) {
  enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  enum cudaStreamCaptureStatus state;
  cudaStream_t s, blocking;
  cudaGraph_t graph, made;
  cudaGraphExec_t exec, inner;
  const cudaGraphNode_t* ends;
  cudaGraphNode_t first, none;
  cudaEvent_t e;
  unsigned long long id = 0;
  size_t n = 0;
  char text[16] = "";
  struct letter l[3];
  int i;
  float ms;
  void* memory;
  for (i = 0; i < 3; i++) { l[i].text = text; l[i].what = (char)('a' + i); }
  CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  CUDA(cudaEventCreate(&e));
  CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
  CUDA(cudaLaunchHostFunc(s, append, &l[0]));
  CUDA(cudaEventRecord(e, s));
  CHECK(cudaEventQuery(e) == cudaErrorCapturedEvent && cudaEventElapsedTime(&ms, e, e) == cudaErrorCapturedEvent);
  CUDA(cudaStreamGetCaptureInfo(s, &state, &id, &graph, &ends, EDGES &n));
  CHECK(state == cudaStreamCaptureStatusActive && id != 0 && n == 1);
  first = ends[0];
  CUDA(cudaLaunchHostFunc(s, append, &l[1]));
  /* c comes after a and before b: steered by hand. */
  CUDA(cudaStreamGetCaptureInfo(s, &state, &id, &graph, &ends, EDGES &n));
  none = ends[0];
  CUDA(cudaStreamUpdateCaptureDependencies(s, &first, EDGES 1, cudaStreamSetCaptureDependencies));
  CUDA(cudaLaunchHostFunc(s, append, &l[2]));
  CUDA(cudaStreamGetCaptureInfo(s, &state, &id, &graph, &ends, EDGES &n));
  first = ends[0];
  CUDA(cudaGraphAddDependencies(graph, &first, &none, EDGES 1));
  CUDA(cudaStreamUpdateCaptureDependencies(s, &none, EDGES 1, cudaStreamAddCaptureDependencies));
  CUDA(cudaStreamEndCapture(s, &made));
  CHECK(made == graph);
  CUDA(cudaGraphInstantiate(&exec, made, 0));
  run(exec, text, "acb");
  /* Into a graph that is there. */
  CUDA(cudaStreamBeginCaptureToGraph(s, made, &none, NULL, 1, cudaStreamCaptureModeRelaxed));
  CUDA(cudaLaunchHostFunc(s, append, &l[0]));
  CUDA(cudaStreamEndCapture(s, &graph));
  CHECK(graph == made);
  CUDA(cudaGraphInstantiate(&inner, made, 0));
  run(inner, text, "acba");
  /* A launch while capturing is a graph in a graph. */
  CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
  CUDA(cudaGraphLaunch(exec, s));
  CUDA(cudaLaunchHostFunc(s, append, &l[2]));
  CUDA(cudaStreamEndCapture(s, &graph));
  CUDA(cudaGraphExecDestroy(inner));
  CUDA(cudaGraphInstantiate(&inner, graph, 0));
  run(inner, text, "acbc");
  CUDA(cudaGraphExecDestroy(inner));
  CUDA(cudaGraphDestroy(graph));
  /* What could disturb a capture breaks it, as the modes say. */
  CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  CHECK(malloc_elsewhere() == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureInvalidated);
  CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  CHECK(malloc_elsewhere() == cudaSuccess);
  CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  CHECK(mode == cudaStreamCaptureModeGlobal);
  CUDA(cudaMalloc(&memory, 8));
  CUDA(cudaFree(memory));
  CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  CHECK(cudaMalloc(&memory, 8) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureInvalidated);
  CUDA(cudaStreamCreate(&blocking));
  CUDA(cudaEventRecord(e, blocking));
  CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
  CHECK(cudaStreamWaitEvent(s, e, 0) == cudaErrorStreamCaptureIsolation);
  CHECK(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureInvalidated);
  CUDA(cudaMalloc(&memory, 8));
  CUDA(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
  CHECK(cudaMemsetAsync(memory, 0, 8, 0) == cudaErrorStreamCaptureImplicit);
  CHECK(cudaStreamEndCapture(blocking, &graph) == cudaErrorStreamCaptureInvalidated);
  CUDA(cudaMemsetAsync(memory, 0, 8, 0));
  CUDA(cudaDeviceSynchronize());
  CUDA(cudaFree(memory));
  CUDA(cudaStreamDestroy(blocking));
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphDestroy(made));
  CUDA(cudaStreamDestroy(s));
  CUDA(cudaEventDestroy(e));
  cudaGetLastError();
}

#ifndef HIP_TWIN
static void updates(void) {
  char text[16] = "";
  struct letter l[3];
  cudaGraph_t one, two;
  cudaGraphNode_t a, b, n;
  cudaGraphExec_t exec;
  cudaGraphExecUpdateResultInfo info;
  int i;
  for (i = 0; i < 3; i++) { l[i].text = text; l[i].what = (char)('a' + i); }
  CUDA(cudaGraphCreate(&one, 0));
  CUDA(cudaGraphCreate(&two, 0));
  a = add_letter(one, &l[0], NULL, 0);
  add_letter(one, &l[1], &a, 1);
  b = add_letter(two, &l[1], NULL, 0);
  add_letter(two, &l[2], &b, 1);
  CUDA(cudaGraphInstantiate(&exec, one, 0));
  CUDA(cudaGraphExecUpdate(exec, two, &info));
  CHECK(info.result == cudaGraphExecUpdateSuccess);
  run(exec, text, "bc");
  CUDA(cudaGraphAddEmptyNode(&n, two, &b, 1));
  CHECK(cudaGraphExecUpdate(exec, two, &info) == cudaErrorGraphExecUpdateFailure);
  CHECK(info.result == cudaGraphExecUpdateErrorTopologyChanged);
  CUDA(cudaGraphAddEmptyNode(&n, one, NULL, 0));
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphInstantiate(&exec, one, 0));
  CHECK(cudaGraphExecUpdate(exec, two, &info) == cudaErrorGraphExecUpdateFailure);
  run(exec, text, "ab");
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphDestroy(one));
  CUDA(cudaGraphDestroy(two));
  cudaGetLastError();
}

#endif

/* The calls of a captured group on one stream: nodes one behind the other that go off together. */
static void a_group_on_one_stream(void) {
  enum { CALLS = 3 };
  ncclComm_t comm;
  cudaStream_t s;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  int *b, i, round, first = 0;
  CHECK(ncclCommInitAll(&comm, 1, &first) == ncclSuccess);
  CUDA(cudaStreamCreate(&s));
  CUDA(cudaMalloc((void**)&b, 3 * CALLS * sizeof(int)));
  CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  CHECK(ncclGroupStart() == ncclSuccess);
  for (i = 0; i < CALLS; i++) CHECK(ncclSend(b + i, 1, ncclInt32, 0, comm, s) == ncclSuccess);
  for (i = 0; i < CALLS; i++) CHECK(ncclRecv(b + CALLS + i, 1, ncclInt32, 0, comm, s) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclSuccess);
  CUDA(cudaMemcpyAsync(b + 2 * CALLS, b + CALLS, CALLS * sizeof(int), cudaMemcpyDefault, s));
  CUDA(cudaStreamEndCapture(s, &graph));
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  for (round = 0; round < 5; round++) {
    for (i = 0; i < CALLS; i++) b[i] = 10 * round + i;
    CUDA(cudaGraphLaunch(exec, s));
    CUDA(cudaStreamSynchronize(s));
    for (i = 0; i < CALLS; i++) CHECK(b[2 * CALLS + i] == 10 * round + i);
  }
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphDestroy(graph));
  CUDA(cudaFree(b));
  CUDA(cudaStreamDestroy(s));
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

int main(void) {
  a_group_on_one_stream();
  node_by_node();
#ifndef HIP_TWIN
  any_kind();
  updates();
#endif
  memory_of_another_device();
  objects();
  events_of_ended_captures();
  nodes_of_captures();
  events_across();
  captures();
  puts("all fine");
  return 0;
}
