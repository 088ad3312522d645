//! The side of a sequence's home: draws for others, and what they are told of how far its log is
//! durable.

use super::*;

impl Sequences {
    pub(super) fn asked(&mut self, serve: Serve, anyway: bool, out: &mut Vec<Effect>) {
        let Serve {
            from, id, object, ..
        } = serve;
        let send = |message| Effect::Send { to: from, message };
        match self.answered.get(&(from, object)) {
            Some((last, _)) if id < *last => return,
            Some((last, answer)) if *last == id => {
                out.extend(answer.clone().map(send));
                return;
            }
            _ => {}
        }
        let home = self.home(object);
        let answer = match () {
            () if self.leaving => Message::Refused { id, object },
            () if home != self.me.instance && !anyway => Message::Moved { id, object, home },
            () => return self.begin_serving(serve, out),
        };
        self.answer(&serve, answer, out);
    }

    /// Sends an answer and remembers it, so that a request that comes again does not have a second
    /// effect.
    pub(super) fn answer(&mut self, serve: &Serve, message: Message, out: &mut Vec<Effect>) {
        make_room(&mut self.answered);
        let key = (serve.from, serve.object);
        self.answered.insert(key, (serve.id, Some(message.clone())));
        let to = serve.from;
        out.push(Effect::Send { to, message });
    }

    pub(super) fn begin_serving(&mut self, serve: Serve, out: &mut Vec<Effect>) {
        let key = (serve.from, serve.object);
        if !self.is_ready() {
            self.parked.insert(key, serve);
            return;
        }
        make_room(&mut self.answered);
        self.answered.insert(key, (serve.id, None));
        out.push(Effect::Serve(serve));
    }

    /// Takes the outcome of a request that the driver served.
    pub fn served(&mut self, serve: &Serve, outcome: Outcome, out: &mut Vec<Effect>) {
        let Serve {
            from, id, object, ..
        } = *serve;
        if !self.members.contains_key(&from) {
            return;
        }
        let message = match outcome {
            Outcome::NotYet => {
                self.answered.remove(&(from, object));
                return self.begin_serving(*serve, out);
            }
            Outcome::Refused => Message::Refused { id, object },
            Outcome::Given(given) => {
                self.count(object, from, given.range.count.min(serve.wanted));
                Message::Drawn {
                    id,
                    object,
                    incarnation: self.me.incarnation,
                    given,
                    home: self.home(object),
                }
            }
        };
        self.answer(serve, message, out);
    }

    /// Tells `to`, which asked, how far this instance's log is durable.
    pub fn flushed(&self, to: InstanceId, durable: LogPos, out: &mut Vec<Effect>) {
        let incarnation = self.me.incarnation;
        let message = Message::Flushed {
            incarnation,
            durable,
        };
        out.push(Effect::Send { to, message });
    }

    pub(super) fn is_member(&self, m: Member) -> bool {
        self.members.get(&m.instance) == Some(&m.incarnation)
    }

    pub(super) fn is_durable(&self, mark: &Mark) -> bool {
        let durable = self.durable.get(&mark.home.instance);
        self.is_member(mark.home) && durable.is_some_and(|d| *d >= mark.pos)
    }

    pub(super) fn heard_durable(
        &mut self,
        instance: InstanceId,
        pos: LogPos,
        out: &mut Vec<Effect>,
    ) {
        let known = self.durable.entry(instance).or_default();
        if *known >= pos {
            return;
        }
        *known = pos;
        let unsure = std::mem::take(&mut self.unsure);
        let unsure = unsure.into_iter().filter(|(_, m)| !self.is_durable(m));
        self.unsure = unsure.collect();
        self.tell_commits(out);
    }

    pub(super) fn tell_commits(&mut self, out: &mut Vec<Effect>) {
        let commits = std::mem::take(&mut self.commits);
        for (waiter, mark) in commits {
            let told = match () {
                () if !self.is_member(mark.home) => Told::Gone,
                () if self.is_durable(&mark) => Told::Durable,
                () => {
                    self.commits.push((waiter, mark));
                    continue;
                }
            };
            out.push(Effect::Told { waiter, told });
        }
    }

    /// Asks an instance to flush its log as far as any session here waits for.
    pub(super) fn ask_flush(&self, to: InstanceId, out: &mut Vec<Effect>) {
        let of = self.commits.iter().filter(|(_, m)| m.home.instance == to);
        if let Some(pos) = of.map(|(_, m)| m.pos).max() {
            let message = Message::Flush { pos };
            out.push(Effect::Send { to, message });
        }
    }
}
