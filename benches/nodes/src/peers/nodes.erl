%% The same load in distributed Erlang, over TCP: two processes on one node, and those that send and ask on the other.
%% No epmd runs: the node that is asked listens at the port where its peer looks for it (-erl_epmd_port).
-module(nodes).
-export([serve/0, measure/1]).

%% As in src/load.rs.
-define(BATCH, 1000).
-define(OPEN, 16).
-define(IN_FLIGHT, 64).
-define(TEXT, 56).
-define(LARGE, ((16 bsl 20) - (64 bsl 10))).
-define(LARGE_MESSAGES, 4).
-define(LIMIT, 20000).

%% The node that is asked. It ends when its input does.
serve() ->
    register(receiver, spawn(fun() -> receiver(0, 0, 0) end)),
    register(echo, spawn(fun() -> receiver(0, 0, 0) end)),
    io:format("ready ~s~n", [node()]),
    io:get_line(""),
    halt(0).

receiver(Messages, Wrong, Next) ->
    receive
        {item, Next, Text} when byte_size(Text) =:= ?TEXT -> receiver(Messages + 1, Wrong, Next + 1);
        {item, Number, _} -> receiver(Messages + 1, Wrong + 1, Number + 1);
        {large, Text, From, Tag} ->
            From ! {Tag, byte_size(Text)},
            receiver(Messages, Wrong, Next);
        {count, From, Tag} ->
            From ! {Tag, {Messages, Wrong}},
            receiver(Messages, Wrong, Next);
        {echo, Number, From, Tag} ->
            From ! {Tag, Number + 1},
            receiver(Messages, Wrong, Next)
    end.

%% The node that sends and asks.
measure([Node | Counts]) ->
    [Messages, Asks, Pipelined, Large] = [list_to_integer(Count) || Count <- Counts],
    Peer = list_to_atom(Node),
    true = net_kernel:connect_node(Peer),
    [Receiver, Echo] = [rpc:call(Peer, erlang, whereis, [Name]) || Name <- [receiver, echo]],
    _ = asks(Echo, Asks div 10, 0, []),
    {P50, P99} = percentiles(asks(Echo, Asks, 0, [])),
    InFlight = timed(fun() -> pipelined(Echo, Pipelined, 0, #{}) end),
    Begun = now_ns(),
    {Arrived, Wrong} = send(Receiver, Messages, 0, queue:new(), 0, {0, 0}),
    OneWay = now_ns() - Begun,
    {BesideP50, BesideP99, LargeTime} = beside(Receiver, Echo, Large),
    io:format("{\"sent\":~w,\"arrived\":~w,\"out_of_order\":~w,\"one_way\":~w,\"ask_p50\":~w,\"ask_p99\":~w,"
              "\"pipelined\":~w,\"in_flight\":~w,\"beside_p50\":~w,\"beside_p99\":~w,\"large\":~w}~n",
              [Messages, Arrived, Wrong, OneWay, P50, P99, Pipelined, InFlight, BesideP50, BesideP99, LargeTime]),
    halt(0).

%% Questions one after the other: their times.
asks(_, 0, _, Times) -> Times;
asks(To, Left, Number, Times) ->
    Begun = now_ns(),
    ask(To, Number),
    asks(To, Left - 1, Number + 1, [now_ns() - Begun | Times]).

ask(To, Number) ->
    Tag = make_ref(),
    To ! {echo, Number, self(), Tag},
    Answer = Number + 1,
    receive {Tag, Answer} -> ok after ?LIMIT -> error(lost) end.

%% Questions with so many in flight.
pipelined(_, 0, _, Open) when map_size(Open) =:= 0 -> ok;
pipelined(To, Left, Number, Open) when Left > 0, map_size(Open) < ?IN_FLIGHT ->
    Tag = make_ref(),
    To ! {echo, Number, self(), Tag},
    pipelined(To, Left - 1, Number + 1, Open#{Tag => Number});
pipelined(To, Left, Number, Open) ->
    receive
        {Tag, Answer} ->
            Answer = maps:get(Tag, Open) + 1,
            pipelined(To, Left, Number, maps:remove(Tag, Open))
    after ?LIMIT -> error(lost)
    end.

%% Messages one way. After each batch it asks how many have arrived, and so many of these questions may be open.
send(_, Messages, Messages, _, 0, Arrived) -> Arrived;
send(To, Messages, Sent, Tags, Open, _) when Open =:= ?OPEN; Sent =:= Messages ->
    {{value, Tag}, Rest} = queue:out(Tags),
    receive {Tag, Arrived} -> send(To, Messages, Sent, Rest, Open - 1, Arrived) after ?LIMIT -> error(lost) end;
send(To, Messages, Sent, Tags, Open, Arrived) ->
    Until = min(Messages, Sent + ?BATCH),
    items(To, Sent, Until),
    Tag = make_ref(),
    To ! {count, self(), Tag},
    send(To, Messages, Until, queue:in(Tag, Tags), Open + 1, Arrived).

items(_, Until, Until) -> ok;
items(To, Number, Until) ->
    To ! {item, Number, text()},
    items(To, Number + 1, Until).

%% A new text for each message.
text() -> binary:copy(<<"m">>, ?TEXT).

%% Questions one after the other while large messages travel.
beside(_, _, 0) -> {null, null, null};
beside(Receiver, Echo, Often) ->
    Self = self(),
    Text = binary:copy(<<"l">>, ?LARGE),
    Begun = now_ns(),
    spawn_link(fun() ->
        larges(Receiver, Text, Often * ?LARGE_MESSAGES),
        Self ! done
    end),
    Times = until_done(Echo, 0, []),
    Time = now_ns() - Begun,
    {P50, P99} = percentiles(Times),
    {P50, P99, Time div Often}.

larges(_, _, 0) -> ok;
larges(To, Text, Left) ->
    Tag = make_ref(),
    To ! {large, Text, self(), Tag},
    Size = byte_size(Text),
    receive {Tag, Size} -> ok after ?LIMIT -> error(lost) end,
    larges(To, Text, Left - 1).

until_done(To, Number, Times) ->
    receive
        done -> Times
    after 0 ->
        Begun = now_ns(),
        ask(To, Number),
        until_done(To, Number + 1, [now_ns() - Begun | Times])
    end.

percentiles(Times) ->
    Sorted = lists:sort(Times),
    At = fun(Part) -> lists:nth(length(Sorted) * Part div 100 + 1, Sorted) end,
    {At(50), At(99)}.

timed(Call) ->
    Begun = now_ns(),
    Call(),
    now_ns() - Begun.

now_ns() -> erlang:monotonic_time(nanosecond).
