//! Messages and changes of epoch: what every member declares that it was given, and where the
//! sequences go on from.

use super::*;

impl Sequences {
    /// Takes a message of a member.
    pub fn message(&mut self, from: InstanceId, message: Message, out: &mut Vec<Effect>) {
        let Some(&life) = self.members.get(&from) else {
            // The sender knows of an epoch that this instance does not know yet, or has been parted
            // from. What it says of its memory counts in any case.
            if let Message::Declare { epoch, states } = message {
                self.hear_declaration(from, epoch, states, out);
            }
            return;
        };
        match message {
            Message::Draw {
                id,
                object,
                header,
                wanted,
                anyway,
            } => {
                let wanted = wanted.clamp(1, WANTED_MAX);
                let serve = Serve {
                    from,
                    id,
                    object,
                    header,
                    wanted,
                };
                self.asked(serve, anyway, out);
            }
            Message::Drawn {
                id,
                object,
                incarnation,
                given,
                home,
            } => {
                let from = Member {
                    instance: from,
                    incarnation,
                };
                self.drawn((object, from), id, (given, home), out);
            }
            Message::Moved { id, object, home } => self.moved((from, object, id), home, out),
            Message::Refused { id, object } => {
                if self.under_way(from, object, id).is_some() {
                    self.sharers_draw_here(object, out);
                }
            }
            Message::Declare { epoch, states } => self.hear_declaration(from, epoch, states, out),
            Message::DeclareWanted => self.declare(from, out),
            Message::Flush { pos } => out.push(Effect::Flush { from, pos }),
            Message::Flushed {
                incarnation,
                durable,
            } => {
                if incarnation == life {
                    self.heard_durable(from, durable, out);
                }
            }
        }
    }

    pub(super) fn hear_declaration(
        &mut self,
        from: InstanceId,
        epoch: Epoch,
        states: Vec<(ObjectId, SequenceState)>,
        out: &mut Vec<Effect>,
    ) {
        for (object, state) in states {
            let floor = self.floors.entry(object).or_insert(state);
            if floor.draw < state.draw && !self.planted.breaks(Mutation::ForgetDeclarations) {
                *floor = state;
            }
        }
        if self.planted.breaks(Mutation::ForgetDeclarations) {
            self.floors.clear();
        }
        let newest = self.declared.entry(from).or_insert(epoch);
        *newest = epoch.max(*newest);
        self.go_on(out);
    }

    pub(super) fn declare(&self, to: InstanceId, out: &mut Vec<Effect>) {
        let states = self.unsure.iter().map(|(o, m)| (*o, m.state)).collect();
        let epoch = self.epoch;
        let message = Message::Declare { epoch, states };
        out.push(Effect::Send { to, message });
    }

    pub(super) fn others(&self) -> impl Iterator<Item = InstanceId> + '_ {
        let me = self.me.instance;
        self.members.keys().copied().filter(move |k| *k != me)
    }

    /// Whether every member has said in this epoch what it remembers.
    pub fn is_ready(&self) -> bool {
        let has_declared = |k| self.declared.get(&k).is_some_and(|e| *e >= self.epoch);
        self.others().all(has_declared)
    }

    /// Does what has waited for every member to declare.
    pub(super) fn go_on(&mut self, out: &mut Vec<Effect>) {
        if !self.is_ready() {
            return;
        }
        let told = Told::Again;
        let patient = self.patient.drain(..);
        out.extend(patient.map(|waiter| Effect::Told { waiter, told }));
        for serve in std::mem::take(&mut self.parked).into_values() {
            self.begin_serving(serve, out);
        }
        let objects: Vec<ObjectId> = self.asking.keys().copied().collect();
        objects.into_iter().for_each(|o| self.ask(o, out));
    }

    /// Enters a new epoch, before the cache enters it. `members`: every instance that is up, this
    /// one included.
    pub fn reconfigure(
        &mut self,
        epoch: Epoch,
        members: impl IntoIterator<Item = Member>,
        out: &mut Vec<Effect>,
    ) {
        let members = members.into_iter().map(|m| (m.instance, m.incarnation));
        let before = std::mem::replace(&mut self.members, members.collect());
        self.epoch = epoch;
        let stays = |k: &InstanceId| {
            let now = self.members.get(k);
            now.is_some() && now == before.get(k)
        };
        self.durable.retain(|k, _| stays(k));
        self.answered.retain(|(k, _), _| stays(k));
        self.parked.retain(|(k, _), _| stays(k));
        self.homes.clear();
        self.used.clear();
        let others: BTreeSet<InstanceId> = self.others().collect();
        self.declared.retain(|k, _| others.contains(k));
        others.iter().for_each(|to| self.declare(*to, out));
        let objects: Vec<ObjectId> = self.asking.keys().copied().collect();
        for object in objects {
            self.ask_in_new_epoch(object, out);
        }
        self.tell_commits(out);
        others.iter().for_each(|to| self.ask_flush(*to, out));
        self.go_on(out);
    }

    /// Makes a request to an instance that has gone again, to the home of now.
    pub(super) fn ask_in_new_epoch(&mut self, object: ObjectId, out: &mut Vec<Effect>) {
        let Some(to) = self.asking.get(&object).and_then(|a| a.request) else {
            return;
        };
        if self.is_member(to.to) {
            return self.send_request(object, out);
        }
        if let Some(asking) = self.asking.get_mut(&object) {
            asking.request = None;
            let sharing = std::mem::take(&mut asking.sharing);
            for waiter in sharing.into_iter().rev().flatten() {
                asking.waiting.push_front(waiter);
            }
        }
    }

    /// Says again what may have been lost, to all members or to one.
    pub fn say_again(&self, to: Option<InstanceId>, out: &mut Vec<Effect>) {
        let meant = |k: InstanceId| to.is_none_or(|to| to == k);
        for (object, asking) in &self.asking {
            if asking.request.is_some_and(|r| meant(r.to.instance)) {
                self.send_request(*object, out);
            }
        }
        for to in self.others().filter(|k| meant(*k)) {
            self.ask_flush(to, out);
            if self.declared.get(&to).is_none_or(|e| *e < self.epoch) {
                let message = Message::DeclareWanted;
                out.push(Effect::Send { to, message });
                self.declare(to, out);
            }
        }
    }
}
