%% The workloads in Erlang: its own processes and messages.
%%
%% Where it differs: mailboxes are unbounded; a message is copied; a process is preempted after so many reductions, wherever
%% it is. A process has no destructor, so `spawn` reports as the last thing it does. There is no thread outside of the
%% schedulers, so in `ask` a process asks: a reference, a message, and a receive for that reference. The random numbers of
%% `big` have 32 bits, since larger ones would be big numbers on the heap.
-module(peers).
-export([main/1]).

-define(RING, 1000).
-define(PRODUCERS, 64).
-define(BATCH, 100).
-define(FRIENDS, 256).
-define(CHILDREN, 10).

main([Workload, Count]) ->
    N = list_to_integer(Count),
    try run(Workload, N) of
        {Took, Ops, Peak, Bytes} ->
            io:format("{\"peer\":\"erlang\",\"workload\":\"~s\",\"n\":~b,\"secs\":~.6f,\"ns_per_op\":~.1f,"
                      "\"rss_mb\":~.1f,\"bytes_per_actor\":~s}~n",
                      [Workload, N, Took / 1.0e9, Took / Ops, Peak / 1048576, Bytes]),
            halt(0)
    catch
        Class:Problem ->
            io:format(standard_error, "erlang: ~s: ~p ~p~n", [Workload, Class, Problem]),
            halt(1)
    end.

run("pingpong", N) -> circle(N, 2);
run("ring", N) -> circle(N, ?RING);
run("counting", N) -> stream(N, 1);
run("fanin", N) -> stream(N, ?PRODUCERS);
run("spawn", N) -> spawn_and_end(N);
run("skynet", N) -> skynet(N);
run("idle", N) -> idle(N);
run("big", N) -> big(N);
run("ask", N) -> ask(N).

now_ns() -> erlang:monotonic_time(nanosecond).

since(Began, Ops) -> {now_ns() - Began, Ops, memory("VmHWM:"), "null"}.

%% Resident memory in bytes, now (VmRSS) or at its peak (VmHWM).
memory(Which) ->
    {ok, Status} = file:read_file("/proc/self/status"),
    Lines = [string:lexemes(Line, " \t") || Line <- string:lexemes(binary_to_list(Status), "\n")],
    [Kilobytes] = [list_to_integer(Number) || [Name, Number, "kB"] <- Lines, Name =:= Which],
    Kilobytes * 1024.

check(_, Same, Same) -> ok;
check(What, Is, MustBe) -> error({What, Is, must_be, MustBe}).

share(N, One, Many) when One < N rem Many -> N div Many + 1;
share(N, _, Many) -> N div Many.

%% Counts down as processes report; the last one tells who waits.
tally(Reports) ->
    Left = atomics:new(1, []),
    atomics:put(Left, 1, Reports),
    {Left, self(), make_ref()}.

strike({Left, Waiting, Ref}) ->
    case atomics:sub_get(Left, 1, 1) of
        0 -> Waiting ! Ref;
        _ -> ok
    end.

wait({_, _, Ref}) ->
    receive Ref -> ok end.

%% A token goes round a circle; whoever gets it last says so.
circle(N, Size) ->
    Me = self(),
    Hoppers = [spawn(fun() -> hopper(Me) end) || _ <- lists:seq(1, Size)],
    lists:foreach(fun({One, Next}) -> One ! {meet, Next} end, lists:zip(Hoppers, tl(Hoppers) ++ [hd(Hoppers)])),
    Began = now_ns(),
    hd(Hoppers) ! N - 1,
    receive over -> ok end,
    Result = since(Began, N),
    [Hopper ! stop || Hopper <- Hoppers],
    check(hops, lists:sum([receive {had, Had} -> Had end || _ <- Hoppers]), N),
    Result.

hopper(Caller) ->
    receive {meet, Next} -> hop(Next, Caller, 0) end.

hop(Next, Caller, Had) ->
    receive
        0 ->
            Caller ! over,
            hop(Next, Caller, Had + 1);
        stop ->
            Caller ! {had, Had};
        Left ->
            Next ! Left - 1,
            hop(Next, Caller, Had + 1)
    end.

%% One or several send to one, who is asked for the total after the last message.
stream(N, Producers) ->
    Counter = spawn(fun() -> counter(0) end),
    Done = tally(Producers),
    Began = now_ns(),
    [spawn(fun() -> produce(Counter, share(N, One, Producers), Done) end) || One <- lists:seq(0, Producers - 1)],
    wait(Done),
    Counter ! {read, self()},
    Total = receive {total, Sum} -> Sum end,
    Result = since(Began, N),
    check(messages_counted, Total, N),
    Result.

counter(Total) ->
    receive
        {add, N} -> counter(Total + N);
        {read, Caller} -> Caller ! {total, Total}
    end.

produce(_, 0, Done) ->
    strike(Done);
produce(Counter, Left, Done) ->
    Batch = min(Left, ?BATCH),
    add(Counter, Batch),
    erlang:yield(),
    produce(Counter, Left - Batch, Done).

add(_, 0) -> ok;
add(Counter, Left) ->
    Counter ! {add, 1},
    add(Counter, Left - 1).

%% Spawns processes, and sends each a message. All of them at the end, if they are to be kept.
spawner(0, _, Kept) -> Kept;
spawner(Left, Child, Kept) ->
    Batch = min(Left, ?BATCH),
    Now = batch(Batch, Child, Kept),
    erlang:yield(),
    spawner(Left - Batch, Child, Now).

batch(0, _, Kept) -> Kept;
batch(Left, Child, Kept) ->
    Pid = spawn(Child),
    Pid ! hello,
    batch(Left - 1, Child, keep(Pid, Kept)).

keep(_, nobody) -> nobody;
keep(Pid, Kept) -> [Pid | Kept].

spawn_and_end(N) ->
    Ended = tally(N),
    Began = now_ns(),
    spawn(fun() -> spawner(N, fun() -> receive hello -> strike(Ended) end end, nobody) end),
    wait(Ended),
    since(Began, N).

idle(N) ->
    Me = self(),
    {Waiting, Ended} = {tally(N), tally(N)},
    Before = memory("VmRSS:"),
    Began = now_ns(),
    spawn(fun() -> Me ! {all, spawner(N, fun() -> waiter(Waiting, Ended) end, [])} end),
    wait(Waiting),
    All = receive {all, Pids} -> Pids end,
    {Took, Ops, Peak, _} = since(Began, N),
    Bytes = (memory("VmRSS:") - Before) / N,
    [Pid ! stop || Pid <- All],
    wait(Ended),
    {Took, Ops, Peak, io_lib:format("~.1f", [Bytes])}.

waiter(Waiting, Ended) ->
    receive
        hello ->
            strike(Waiting),
            waiter(Waiting, Ended);
        stop ->
            strike(Ended)
    end.

%% A process of the tree stands for so many numbers from First on, and tells its parent their sum.
node(Parent, First, 1) ->
    Parent ! {sum, First};
node(Parent, First, Leaves) ->
    {Me, Below} = {self(), Leaves div ?CHILDREN},
    [spawn(fun() -> node(Me, First + Child * Below, Below) end) || Child <- lists:seq(0, ?CHILDREN - 1)],
    Parent ! {sum, sums(?CHILDREN, 0)}.

sums(0, Sum) -> Sum;
sums(ToCome, Sum) ->
    receive {sum, One} -> sums(ToCome - 1, Sum + One) end.

skynet(N) ->
    Me = self(),
    Began = now_ns(),
    spawn(fun() -> node(Me, 0, N) end),
    Sum = sums(1, 0),
    Result = since(Began, (N * ?CHILDREN - 1) div (?CHILDREN - 1)),
    check(the_sum, Sum, N * (N - 1) div 2),
    Result.

%% Friends ping a random other, wait for the pong, and so on.
big(N) ->
    Me = self(),
    Friends = [spawn(fun() -> friend(Me, One, share(N, One, ?FRIENDS)) end) || One <- lists:seq(0, ?FRIENDS - 1)],
    All = list_to_tuple(Friends),
    [Friend ! {friends, All} || Friend <- Friends],
    Began = now_ns(),
    [Friend ! 'begin' || Friend <- Friends],
    [receive done -> ok end || _ <- Friends],
    Result = since(Began, N),
    [Friend ! stop || Friend <- Friends],
    check(pings_answered, lists:sum([receive {answered, Answered} -> Answered end || _ <- Friends]), N),
    Result.

friend(Referee, One, Left) ->
    receive {friends, All} -> talk(Referee, All, (One + 1) * 2654435769 band 16#ffffffff, Left, 0) end.

talk(Referee, All, Random, Left, Answered) ->
    receive
        {ping, From} ->
            From ! pong,
            talk(Referee, All, Random, Left, Answered + 1);
        Turn when Turn =:= 'begin'; Turn =:= pong ->
            {Then, Now} = next(Referee, All, Random, Left),
            talk(Referee, All, Then, Now, Answered);
        stop ->
            Referee ! {answered, Answered}
    end.

next(Referee, _, Random, 0) ->
    Referee ! done,
    {Random, 0};
next(Referee, All, Random, Left) ->
    One = Random bxor (Random bsl 13 band 16#ffffffff),
    Two = One bxor (One bsr 17),
    Then = Two bxor (Two bsl 5 band 16#ffffffff),
    case element((Then bsr 16) rem ?FRIENDS + 1, All) of
        Other when Other =/= self() ->
            Other ! {ping, self()},
            {Then, Left - 1};
        _ ->
            next(Referee, All, Then, Left)
    end.

%% One process asks another, one question after the other.
ask(N) ->
    Numbers = spawn(fun() -> numbers(1) end),
    Began = now_ns(),
    ask(Numbers, 1, N),
    since(Began, N).

ask(_, Call, N) when Call > N -> ok;
ask(Numbers, Call, N) ->
    Ref = make_ref(),
    Numbers ! {next, self(), Ref},
    receive {Ref, Answer} -> check(the_answer, Answer, Call) end,
    ask(Numbers, Call + 1, N).

numbers(Next) ->
    receive {next, Caller, Ref} -> Caller ! {Ref, Next} end,
    numbers(Next + 1).
