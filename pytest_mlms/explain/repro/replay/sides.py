"""The agents of both sides: started when they are first asked, and kept for the next model."""

import os
from typing import Dict, Iterator, List, Mapping

from .agent import Agent, Ended, Failed, Launch, outputs_of
from .npz import Array, write_npz
from .task import CannotRun, Task

OLD = "old"
NEW = "new"

_CALLS = 20  # of a model that may crash


class Sides:
    """Agents by the name of their side; use it as a context, which ends them."""

    def __init__(self, launches: Mapping[str, Launch]):
        self.launches = launches
        self._agents: Dict[str, Agent] = {}

    def __enter__(self) -> "Sides":
        return self

    def __exit__(self, *error: object) -> None:
        self.close(wait=not any(error))

    def agent(self, side: str) -> Agent:
        """Return the agent of a side, with its framework imported; raises Failed and Ended."""
        found = self._agents.get(side)
        if found is None:
            found = Agent(self.launches[side])
            self._agents[side] = found
            try:
                found.hello()
            except (Failed, Ended):
                self.end(side)
                raise
        return found

    def fresh(self, side: str) -> Agent:
        """Return a new agent of a side."""
        self.end(side)
        return self.agent(side)

    def end(self, side: str, wait: bool = True) -> None:
        """End the agent of a side, if there is one; without ``wait`` at once."""
        found = self._agents.pop(side, None)
        if found is not None:
            found.close(wait)

    def close(self, wait: bool = True) -> None:
        """End all agents."""
        for side in tuple(self._agents):
            self.end(side, wait)

    def predict(self, side: str, task: Task, again: bool = False) -> List[Array]:
        """Load the model, unless it is there, and run it once; raises Failed and Ended."""
        try:
            agent = self.agent(side)
            if not again:
                agent.request("load", task.load)
            _, arrays = agent.request("predict", arrays=task.inputs)
        except Ended:
            self.end(side)
            raise
        return outputs_of(arrays)

    def exercise(self, side: str, task: Task) -> None:
        """Load the model and run it some times; raises Failed and Ended."""
        self.predict(side, task)
        try:
            agent = self.agent(side)
            agent.request("bind", {"batches": 1}, task.inputs)
            agent.request("turn", {"count": _CALLS, "skip": 0, "first": 0, "outputs": False})
        except Ended:
            self.end(side)
            raise

    def leave(self, side: str) -> None:
        """End the agent of a side as programs end; raises Ended where it fails so."""
        try:
            self.agent(side).leave()
        finally:
            self.end(side)

    def write_outputs(self, side: str, task: Task) -> str:
        """Run the model once and return the path of its outputs."""
        return next(self.each_outputs(side, task))

    def each_outputs(self, side: str, task: Task) -> Iterator[str]:
        """Run the model as often as a task asks; yield the path of its outputs, and of others."""
        earlier = None
        for _ in range(max(1, task.expected.calls)):
            outputs = self.predict(side, task, again=earlier is not None)
            if outputs != earlier:
                earlier = outputs
                path = os.path.join(task.work, "outputs-%s.npz" % side)
                write_npz(path, outputs)
                yield path

    def old_outputs(self, task: Task) -> str:
        """Return the path of the old side's outputs; raises CannotRun where it fails."""
        try:
            return self.write_outputs(OLD, task)
        except (Failed, Ended) as error:
            raise CannotRun("the old side can't run the model here: %s" % error) from None
