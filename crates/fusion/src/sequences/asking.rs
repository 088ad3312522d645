//! The side of an instance that is not a sequence's home: one request under way for all sessions
//! that wait, and what comes back.

use super::*;

impl Sequences {
    /// Sends a request for the sessions that wait, if none is under way.
    pub(super) fn ask(&mut self, object: ObjectId, out: &mut Vec<Effect>) {
        let (ready, home) = (self.is_ready(), self.home(object));
        let Some(asking) = self.asking.get_mut(&object) else {
            return;
        };
        if asking.request.is_some() {
            return;
        }
        if asking.waiting.is_empty() {
            self.asking.remove(&object);
            return;
        }
        if !ready {
            return;
        }
        if home == self.me.instance {
            let waiting = self.asking.remove(&object).map(|a| a.waiting);
            self.draw_here(object, waiting.into_iter().flatten(), out);
            return;
        }
        let n = asking.waiting.len().min(WANTED_MAX as usize);
        asking.sharing = asking.waiting.drain(..n).map(Some).collect();
        self.request(object, home, 0, out);
    }

    pub(super) fn draw_here(
        &mut self,
        object: ObjectId,
        waiters: impl Iterator<Item = Waiter>,
        out: &mut Vec<Effect>,
    ) {
        for waiter in waiters {
            self.count(object, self.me.instance, 1);
            let told = Told::Here;
            out.push(Effect::Told { waiter, told });
        }
    }

    /// Sends the request of the sessions that share it to `to`.
    pub(super) fn request(
        &mut self,
        object: ObjectId,
        to: InstanceId,
        hops: u8,
        out: &mut Vec<Effect>,
    ) {
        self.last_id += 1;
        let id = RequestId(self.last_id);
        let incarnation = self.members[&to];
        let Some(asking) = self.asking.get_mut(&object) else {
            return;
        };
        asking.request = Some(Request {
            id,
            to: Member {
                instance: to,
                incarnation,
            },
            hops,
            outdated: false,
        });
        self.send_request(object, out);
    }

    pub(super) fn send_request(&self, object: ObjectId, out: &mut Vec<Effect>) {
        let Some(asking) = self.asking.get(&object) else {
            return;
        };
        let Some(request) = asking.request else {
            return;
        };
        let message = Message::Draw {
            id: request.id,
            object,
            header: asking.header,
            wanted: asking.sharing.len().max(1) as u32,
            anyway: request.hops >= HOPS_MAX,
        };
        let to = request.to.instance;
        out.push(Effect::Send { to, message });
    }

    /// The request `id` to `from`, if it is under way.
    pub(super) fn under_way(
        &mut self,
        from: InstanceId,
        object: ObjectId,
        id: RequestId,
    ) -> Option<Request> {
        let request = self.asking.get(&object)?.request?;
        (request.id == id && request.to.instance == from).then_some(request)
    }

    pub(super) fn drawn(
        &mut self,
        (object, from): (ObjectId, Member),
        id: RequestId,
        (given, home): (Given, InstanceId),
        out: &mut Vec<Effect>,
    ) {
        if !self.is_member(from) {
            return;
        }
        self.heard_durable(from.instance, given.durable, out);
        let Some(request) = self.under_way(from.instance, object, id) else {
            return;
        };
        make_room(&mut self.homes);
        self.homes.insert(object, home);
        let mark = Mark {
            home: from,
            pos: given.pos,
            state: given.state,
        };
        if !self.is_durable(&mark) {
            let known = self.unsure.entry(object).or_insert(mark);
            if known.state.draw <= given.state.draw {
                *known = mark;
            }
        }
        let Some(asking) = self.asking.get_mut(&object) else {
            return;
        };
        asking.request = None;
        if self.planted.breaks(Mutation::ShareWithLateComers) {
            let late = asking.waiting.drain(..).map(Some);
            asking.sharing.splice(0..0, late);
        }
        let mut next = 0;
        let mut left = std::mem::take(&mut asking.sharing).into_iter();
        for slot in left.by_ref().take(given.range.count as usize) {
            match slot {
                Some(waiter) => {
                    let value = given.value(next);
                    let told = Told::Value { value, mark };
                    out.push(Effect::Told { waiter, told });
                }
                // Values are kept in order: those that a waiter gave up are the last of a kept
                // range.
                None if given.keep => continue,
                None => {}
            }
            next += 1;
        }
        // The sequence gave fewer than were wanted.
        for waiter in left.flatten().collect::<Vec<_>>().into_iter().rev() {
            asking.waiting.push_front(waiter);
        }
        if given.keep && next < given.range.count && !request.outdated {
            out.push(Effect::Keep {
                object,
                range: given.rest(next),
                increment: given.increment,
                mark,
            });
            let told = Told::Again;
            let again = asking.waiting.drain(..);
            out.extend(again.map(|waiter| Effect::Told { waiter, told }));
        }
        self.ask(object, out);
    }

    pub(super) fn moved(
        &mut self,
        (from, object, id): (InstanceId, ObjectId, RequestId),
        home: InstanceId,
        out: &mut Vec<Effect>,
    ) {
        let Some(request) = self.under_way(from, object, id) else {
            return;
        };
        if !self.members.contains_key(&home) {
            // The answer is of another epoch: one of the two will know better soon, or `from`
            // serves the request.
            return self.request(object, from, HOPS_MAX, out);
        }
        make_room(&mut self.homes);
        self.homes.insert(object, home);
        if home == self.me.instance {
            return self.sharers_draw_here(object, out);
        }
        self.request(object, home, request.hops.saturating_add(1), out);
    }

    pub(super) fn sharers_draw_here(&mut self, object: ObjectId, out: &mut Vec<Effect>) {
        if let Some(asking) = self.asking.get_mut(&object) {
            asking.request = None;
            let sharing = std::mem::take(&mut asking.sharing);
            self.draw_here(object, sharing.into_iter().flatten(), out);
        }
        self.ask(object, out);
    }
}
