"""Which conversation a request belongs to: retries, subagents, compaction, and what is reported as unsure."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from suffice_server.proxy.anthropic import Messages
from suffice_server.proxy.asked import Asked
from suffice_server.proxy.conversations import Conversations, Replied
from suffice_server.proxy.openai import Chat, Responses
from suffice_server.proxy.redacting import Secrets
from tests.support.upstream import chat, message, response

CHAT, RESPONSES, MESSAGES = Chat(), Responses(), Messages()
FORMS = {CHAT: chat, RESPONSES: response, MESSAGES: message}
BASH = {"type": "function", "function": {"name": "bash"}}


class Client:
    """Asks and is answered without a server; replies are numbered, so that their calls have ids of their own.

    With `counts`, the ids are counted anew in each conversation, as some servers do.
    """

    def __init__(self, *, counts=False):
        self.known = Conversations()
        self.n, self.counts = 0, counts

    def ask(self, protocol, history, reply=None, *, key="", is_retry=False, **body):
        """Return the conversation and branch of a request; with a reply, note it and append it to the history."""
        body = {"messages": list(history), "input": list(history), **body}
        asked = Asked.of(protocol, body, key=key, is_retry=is_retry, redact=Secrets())
        conversation, branch = self.known.find(asked)
        if reply is not None:
            self.n += 1
            n = len(asked.spoken) if self.counts else self.n
            called = protocol.reply(FORMS[protocol](reply, {"model": "m"}, n)[0])
            self.known.note(
                conversation,
                Replied(
                    branch=branch,
                    number=conversation.begun,
                    chain=asked.chain[-1],
                    digest=asked.digest,
                    called=called,
                    dollars=0.0,
                    seconds=1.0,
                ),
            )
            history += said(protocol, called)
        return conversation, branch


def said(protocol, called):
    """Return the messages that a client adds after a reply: the reply, and the results of its tools."""
    if protocol is CHAT:
        return [
            called.body["choices"][0]["message"],
            *({"role": "tool", "tool_call_id": i, "content": "ok"} for i in called.ids),
        ]
    if protocol is RESPONSES:
        items = [{"type": "function_call_output", "call_id": name, "output": "ok"} for name in called.ids]
        return [*called.body["output"], *items]
    results = [{"type": "tool_result", "tool_use_id": name, "content": "ok"} for name in called.ids]
    return [
        {"role": "assistant", "content": called.body["content"]},
        *([{"role": "user", "content": results}] if results else []),
    ]


def user(text):
    return {"role": "user", "content": text}


CALL = [("bash", {"command": "ls"})]


@pytest.mark.parametrize("protocol", FORMS)
def test_a_loop_stays_one_conversation(protocol):
    client, history = Client(), [user("Mend it.")]
    seen = [client.ask(protocol, history, reply) for reply in (CALL, CALL, "Done.")]
    history.append(user("And that."))
    seen.append(client.ask(protocol, history, "Done."))
    assert {(one.id, branch) for one, branch in seen} == {(seen[0][0].id, "main")}
    assert seen[0][0].why == ""


def test_the_systems_prompt_and_marks_of_a_cache_may_change():
    client, history = Client(), [user("Mend it.")]
    first, _ = client.ask(MESSAGES, history, "Draft.", system="It is 9:00.")
    part = {"type": "text", "text": "Mend it.", "cache_control": {"type": "ephemeral"}}
    again = [{"role": "user", "content": [part]}, *history[1:], user("Better.")]
    assert client.ask(MESSAGES, again, system="It is 9:01.")[0] is first
    first, _ = client.ask(CHAT, history := [{"role": "system", "content": "9:00"}, user("Other.")], "Draft.")
    again = [{"role": "developer", "content": "9:01"}, *history[1:], user("Better.")]
    assert client.ask(CHAT, again)[0] is first


def test_a_response_that_names_the_one_before_goes_on():
    client = Client()
    first, _ = client.ask(RESPONSES, history := [user("Mend it.")], CALL)
    items = [item for item in history if item.get("type") == "function_call_output"]
    found, _ = client.ask(RESPONSES, items, previous_response_id="resp1")
    assert (found, found.why) == (first, "")


def test_a_request_sent_again_asks_for_the_same_round():
    client, history = Client(), [user("Mend it.")]
    before = list(history)
    first, _ = client.ask(CHAT, history, CALL)
    again, _ = client.ask(CHAT, before, CALL, is_retry=True, stream=True)
    assert (again, again.begun, again.why) == (first, 1, "")
    assert [replied.number for replied in again.replies] == [1, 1]


def test_an_equal_request_that_is_no_retry_is_unsure():
    client = Client()
    first, _ = client.ask(CHAT, [user("Toss a coin.")], "Heads.")
    other, _ = client.ask(CHAT, [user("Toss a coin.")], "Tails.")
    assert other is not first
    assert (first.why, other.why) == ("", "repeated")


def test_equal_requests_under_one_key_are_rounds():
    client = Client()
    first, _ = client.ask(CHAT, [user("Toss a coin.")], "Heads.", key="k")
    other, branch = client.ask(CHAT, [user("Toss a coin.")], "Tails.", key="k")
    assert (other, branch, other.begun) == (first, "main", 2)


def test_samples_of_one_prompt_are_told_apart_by_their_replies():
    client = Client()
    histories = [[user("Plan.")] for _ in range(3)]
    own = [client.ask(CHAT, history, f"Plan {n}.")[0] for n, history in enumerate(histories)]
    for conversation, history in zip(own, histories, strict=True):
        history.append(user("Go on."))
        assert client.ask(CHAT, history)[0] is conversation


def test_a_subagent_under_the_key_is_charged_to_the_round():
    client, history = Client(), [user("Mend it.")]
    main, _ = client.ask(MESSAGES, history, [("task", {"prompt": "Look."})], key="k", tools=[{"name": "task"}])
    inner = [user("Look.")]
    for reply in (CALL, "Found."):
        assert client.ask(MESSAGES, inner, reply, key="k", tools=[{"name": "bash"}]) == (main, "side")
    assert client.ask(MESSAGES, history, "Done.", key="k", tools=[{"name": "task"}]) == (main, "main")
    assert main.why == ""


def test_a_subagent_without_a_key_is_a_conversation_of_its_own():
    client, history = Client(), [user("Mend it.")]
    main, _ = client.ask(CHAT, history, CALL)
    inner, _ = client.ask(CHAT, [user("Look.")], "Found.")
    assert inner is not main
    assert client.ask(CHAT, history, "Done.")[0] is main
    assert (main.why, inner.why) == ("", "")


def test_a_call_while_another_is_in_flight_is_beside_it():
    client = Client()
    main, _ = client.ask(CHAT, [user("Mend it.")], key="k")
    main.busy["main"] += 1
    assert client.ask(CHAT, [user("A title for this?")], key="k") == (main, "side")


def test_compaction_that_keeps_the_last_calls_goes_on():
    client, history = Client(), [user("Mend it.")]
    first, _ = client.ask(CHAT, history, CALL)
    client.ask(CHAT, history, CALL)
    compacted = [history[0], user("Summary: ls was run."), *history[-2:]]
    found, branch = client.ask(CHAT, compacted, "Done.")
    assert (found, branch, found.why) == (first, "main", "")


@pytest.mark.parametrize(
    ("name", "goes_on"), [("call_9f3KxT2bQ0", True), ("call_0", False), ("functions.bash:10", False)]
)
def test_calls_of_another_task_are_known_by_ids_drawn_at_random(name, goes_on):
    client, history = Client(), [user("Mend it.")]
    first, _ = client.ask(CHAT, history, CALL)
    first.waiting = {name}
    said = {"role": "assistant", "tool_calls": [{"id": name, "function": {"name": "bash", "arguments": "{}"}}]}
    found, _ = client.ask(CHAT, [user("Summary."), said, {"role": "tool", "tool_call_id": name, "content": "ok"}])
    assert ((found is first), found.why) == (goes_on, "" if goes_on else "history")


@pytest.mark.parametrize("protocol", FORMS)
def test_equal_ids_of_calls_in_other_conversations_change_nothing(protocol):
    client, histories = Client(counts=True), [[user(f"Task {n}.")] for n in range(2)]
    own = [client.ask(protocol, history, CALL)[0] for history in histories]
    for reply in (CALL, CALL, "Done."):
        for conversation, history in zip(own, histories, strict=True):
            assert client.ask(protocol, history, reply)[0] is conversation
    assert [(one.why, one.begun) for one in own] == [("", 4)] * 2


def test_samples_with_equal_ids_are_told_apart_by_their_arguments():
    client, histories = Client(counts=True), [[user("Mend it.")] for _ in range(2)]
    own = [client.ask(CHAT, history, [("bash", {"command": n})])[0] for n, history in enumerate(histories)]
    for conversation, history in zip(own, histories, strict=True):
        assert client.ask(CHAT, history)[0] is conversation


def test_a_key_never_finds_the_conversation_of_another_key():
    client, history = Client(), [user("Mend it.")]
    first, _ = client.ask(CHAT, history, CALL, key="k")
    other, _ = client.ask(CHAT, history, "Done.", key="j")
    assert other is not first
    assert (first.why, other.why) == ("", "history")


@pytest.mark.parametrize("reply", ["A draft.", CALL])
@pytest.mark.parametrize("in_flight", [False, True])
@pytest.mark.parametrize("protocol", FORMS)
def test_branches_of_one_history_are_conversations_of_their_own(protocol, in_flight, reply):
    client, history = Client(), [user("Write.")]
    main, _ = client.ask(protocol, history, reply)
    branches = [[*history, user(f"Way {n}.")] for n in range(3)]
    found = [client.ask(protocol, branch, None if in_flight else "Better.")[0] for branch in branches]
    assert len({one.id for one in found}) == 3
    assert (found[0], [one.why for one in found]) == (main, ["", "fork", "fork"])
    if not in_flight:
        assert [client.ask(protocol, [*branch, user("Go on.")])[0] for branch in branches] == found


def test_a_request_whose_reply_failed_may_come_changed():
    client, history = Client(), [user("Write.")]
    main, _ = client.ask(CHAT, history, "A draft.")
    client.ask(CHAT, [*history, user("Longer.")])
    main.unanswered()
    found, _ = client.ask(CHAT, [*history, user("Shorter.")])
    assert (found, found.why, found.begun) == (main, "", 2)


def test_a_shortened_history_goes_on_and_is_unsure():
    client, history = Client(), [user("Write.")]
    main, _ = client.ask(CHAT, history, "A draft.")
    history.append(user("A long remark."))
    client.ask(CHAT, history, "A better draft.")
    found, _ = client.ask(CHAT, [*history[:2], user("(cut)"), history[3], user("Go on.")])
    assert (found, found.why) == (main, "edited")


def test_equal_replies_make_all_their_conversations_unsure():
    client, histories = Client(), [[user("Plan.")] for _ in range(2)]
    own = [client.ask(CHAT, history, "A plan.")[0] for history in histories]
    for conversation in own:
        conversation.why = ""
    client.ask(CHAT, [*histories[0], user("Go on.")])
    assert [one.why for one in own] == ["several", "several"]


@pytest.mark.parametrize("name", ["conv_1", {"id": "conv_1"}])
def test_responses_of_one_named_conversation_are_its_rounds(name):
    client = Client()
    first, _ = client.ask(RESPONSES, history := [user("Mend it.")], CALL, conversation=name)
    for turn in (history[-1:], [user("And that.")]):
        found = client.ask(RESPONSES, list(turn), "Done.", conversation=name)
        assert found == (first, "main")
    assert (first.key, first.why, first.begun) == ("conv_1", "", 3)
    assert client.ask(RESPONSES, [user("Mend it.")], conversation="conv_2")[0] is not first


@pytest.mark.parametrize("protocol", FORMS)
@pytest.mark.parametrize("parts", [False, True])
def test_a_reply_may_be_repeated_as_a_text_or_parts(protocol, parts):
    client, history = Client(), [user("Mend it.")]
    first, _ = client.ask(protocol, history, "Done.")
    kind = "output_text" if protocol is RESPONSES else "text"
    said = {"role": "assistant", "content": [{"type": kind, "text": "Done."}] if parts else "Done."}
    found, _ = client.ask(protocol, [history[0], said, user("And that.")])
    assert (found, found.why) == (first, "")


def test_a_response_that_nobody_saw_is_a_history_that_nobody_saw():
    found, _ = Client().ask(RESPONSES, [user("Go on.")], previous_response_id="resp9")
    assert found.why == "history"


SUMMARY = "The file a.py was read, and its second function divides by zero where the list is empty."


def summarised(**given):
    """Return a client, and a conversation of two rounds whose last reply is a summary."""
    client, history = Client(), [user("Mend it.")]
    first, _ = client.ask(MESSAGES, history, CALL, **given)
    history[-1]["content"].append({"type": "text", "text": "Summarise."})
    client.ask(MESSAGES, history, f"<summary>\n{SUMMARY}\n</summary>", **given)
    return client, first


@pytest.mark.parametrize("system", ["You mend code. It is 9:00.", ""])
def test_compaction_to_a_summary_that_quotes_the_last_reply_goes_on(system):
    client, first = summarised(tools=[BASH], system=system, model="m")
    begin = f"This session goes on from another one.\n\n{SUMMARY}"
    given = {"tools": [BASH], "system": system.replace("9:00", "9:01"), "model": "m"}
    found, _ = client.ask(MESSAGES, [user(begin)], "Done.", **given)
    assert (found, found.why) == (first, "")


@pytest.mark.parametrize("own", [{"tools": []}, {"model": "critic"}, {"tools": [{"name": "mark"}]}])
def test_a_critic_that_quotes_a_draft_is_a_conversation_of_its_own(own):
    client, writer = summarised(tools=[BASH], system="Write.", model="m")
    critic, _ = client.ask(MESSAGES, [user(f"Mark this:\n{SUMMARY}")], **{"tools": [BASH], "model": "m", **own})
    assert critic is not writer
    assert (writer.why, critic.why) == ("", "")


def test_the_next_step_of_a_pipeline_is_a_conversation_of_its_own():
    client = Client()
    first, _ = client.ask(CHAT, [user("Plan it.")], SUMMARY)
    second, _ = client.ask(CHAT, [user(f"Do this: {SUMMARY}")], "Done.")
    assert second is not first
    assert (first.why, second.why) == ("", "")


@pytest.mark.parametrize("given", [{"tools": [BASH], "system": "Judge."}, {"system": "Write."}])
def test_a_quote_that_may_be_a_compaction_or_a_critic_is_unsure(given):
    client, writer = summarised(**({"system": "Write."} | {"tools": given["tools"]} if "tools" in given else given))
    found, _ = client.ask(MESSAGES, [user(f"See:\n{SUMMARY}")], **given)
    assert found is not writer
    assert (writer.why, found.why) == ("quoted", "quoted")


def test_compaction_under_a_key_goes_on_once_no_tool_runs():
    client, history = Client(), [user("Mend it.")]
    first, _ = client.ask(CHAT, history, SUMMARY, key="k")
    assert client.ask(CHAT, [user(f"So far: {SUMMARY}")], key="k") == (first, "main")
    assert first.why == ""


def test_one_key_for_two_tasks_is_unsure():
    client, history = Client(), [user("Mend it.")]
    first, _ = client.ask(CHAT, history, "All is well.", key="k")
    client.ask(CHAT, [*history, user("Thanks.")], "Welcome.", key="k")
    assert first.why == ""
    assert client.ask(CHAT, [user("Where was Edvard Munch born?")], "Oslo.", key="k") == (first, "main")
    assert first.why == "tasks"


def test_two_tasks_of_one_form_under_one_key_are_unsure():
    client, history = Client(), [user("Answer in one word: where is Oslo?")]
    first, _ = client.ask(CHAT, history, "Norway.", key="k")
    client.ask(CHAT, [*history, user("Sure?")], "Yes.", key="k")
    client.ask(CHAT, [user("Answer in one word: where is Bern?")], "Switzerland.", key="k")
    assert first.why == "tasks"


def test_prompts_of_one_loop_under_one_key_are_its_rounds():
    client, asked = Client(), "Answer in one word: who painted The Scream?"
    first, _ = client.ask(CHAT, [user(asked)], "Unsure.", key="k")
    for n in range(3):
        prompt = f"{'A passage on Oslo. ' * n}{asked}"
        assert client.ask(CHAT, [user(prompt)], "Munch.", key="k") == (first, "main")
    assert (first.why, first.begun) == ("", 4)


def test_a_history_that_nobody_saw_is_unsure():
    client = Client()
    found, _ = client.ask(CHAT, [user("Mend it."), {"role": "assistant", "content": "Yes."}, user("Go on.")])
    assert found.why == "history"


def test_a_fork_of_a_conversation_is_unsure_and_leaves_it_alone():
    client, history = Client(), [user("Mend it.")]
    main, _ = client.ask(CHAT, history, CALL)
    early = [*history, user("Think differently.")]
    client.ask(CHAT, history, CALL)
    fork, _ = client.ask(CHAT, early, "Other.")
    assert fork is not main
    assert (main.why, fork.why) == ("", "fork")
    assert client.ask(CHAT, history, "Done.")[0] is main


def test_a_reply_that_the_client_edited_is_unsure():
    client, history = Client(), [user("Write.")]
    first, _ = client.ask(CHAT, history, "A draft.")
    history[-1] = {"role": "assistant", "content": "Another draft."}
    found, _ = client.ask(CHAT, [*history, user("Better.")])
    assert (found, found.why) == (first, "edited")


def test_other_tools_in_one_conversation_are_unsure():
    client, history = Client(), [user("Mend it.")]
    client.ask(CHAT, history, CALL, tools=[BASH])
    found, _ = client.ask(CHAT, history, "Done.", tools=[{"type": "function", "function": {"name": "look"}}])
    assert found.why == "tools"


def test_what_was_removed_is_never_found_again():
    client, history = Client(), [user("Mend it.")]
    first, _ = client.ask(CHAT, history, CALL, key="k")
    client.known.remove(first)
    other, _ = client.ask(CHAT, history, "Done.", key="k")
    assert other is not first
    assert other.why == "history"


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=24), st.sampled_from([*FORMS]))
def test_interleaved_loops_never_mix(turns, protocol):
    client, histories, owners = Client(), [[user(f"Task {n}.")] for n in range(4)], {}
    for number, calls in turns:
        history = histories[number]
        if history[-1].get("role") == "assistant" or history[-1].get("type") == "message":
            history.append(user(f"More {len(history)}."))
        found, branch = client.ask(protocol, history, CALL if calls else "Said.")
        assert owners.setdefault(number, found) is found
        assert (branch, found.why) == ("main", "")
    assert len({found.id for found in owners.values()}) == len(owners)
