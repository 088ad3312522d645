//! The demo's steps about waits. A session waits for a block and then for a row of the other
//! instance. Both waits are taken apart, to show who made the session wait.

use super::Demo;
use super::claims::parts_add_up;
use super::cluster::until;
use super::session::Session;
use crate::Failure;

const ROW_WAIT: &str = "enq: TX - row lock contention";
/// The holder commits once the other session has waited for so long, in microseconds. So the wait
/// is the holder's, however busy the machine is.
const HELD_MICRO: i64 = 250_000;

/// Columns of `v$session_wait` with the parts of the last wait for another instance. Each comes
/// with what the part is in a wait for a block.
const BLOCK_PARTS: [(&str, &str); 8] = [
    (
        "message_out_micro",
        "the request, on its way to the other instance",
    ),
    (
        "queue_micro",
        "until a thread of that instance took the request up",
    ),
    (
        "in_use_micro",
        "until that instance's own sessions let go of the block",
    ),
    ("build_micro", "making the answer"),
    (
        "flush_micro",
        "writing the block's redo to disk there, before the block leaves",
    ),
    ("other_micro", "anything else there"),
    ("message_back_micro", "the answer, on its way back"),
    (
        "wakeup_micro",
        "from the answer's arrival until the session runs again",
    ),
];

/// Parts of the last wait for another instance by their names in `v$session_gc_latency`. Each comes
/// with what the part is in a wait for a row.
const ROW_PARTS: [(&str, &str); 8] = [
    (
        "message out",
        "the request, on its way to the other instance",
    ),
    (
        "queue",
        "until a thread of that instance took the request up",
    ),
    (
        "in use",
        "until the transaction ended that had locked the row",
    ),
    ("build", "making the answer"),
    ("log flush", "writing that transaction's commit to the log"),
    ("other", "anything else there"),
    ("message back", "the answer, on its way back"),
    (
        "wake up",
        "from the answer's arrival until the session runs again",
    ),
];

/// A wait that another instance caused.
struct Wait {
    event: String,
    instance: i64,
    total: i64,
    /// The parts, in the order of the tables above.
    parts: Vec<i64>,
}

impl Wait {
    /// Shows the parts, one a line, with their share of the whole. Returns the name of the longest.
    fn show(&self, demo: &Demo, parts: &[(&'static str, &'static str)]) -> &'static str {
        let percent =
            |micro: i64| format!("{} %", (100 * micro + self.total / 2) / self.total.max(1));
        let mut rows: Vec<Vec<String>> = parts
            .iter()
            .zip(&self.parts)
            .map(|((part, meaning), micro)| {
                let (micro_text, share) = (micro.to_string(), percent(*micro));
                vec![part.to_string(), micro_text, share, meaning.to_string()]
            })
            .collect();
        let whole = format!("waited for instance {}: {}", self.instance, self.event);
        rows.push(vec![
            "total".into(),
            self.total.to_string(),
            percent(self.total),
            whole,
        ]);
        demo.stage
            .table(&["part", "micro", "share", "what it is"], &rows);
        let longest = parts
            .iter()
            .zip(&self.parts)
            .max_by_key(|(_, micro)| **micro);
        longest.map_or("", |((part, _), _)| part)
    }
}

/// Reads the session's last wait for another instance, as any other session could.
fn last_wait(demo: &Demo, session: &mut Session) -> Result<Wait, Failure> {
    let names = BLOCK_PARTS.map(|(name, _)| name);
    let sql = format!(
        "select last_remote_event, last_remote_instance, last_remote_micro,\n       {},\n       {}\n  \
           from v$session_wait where sid = {}",
        names[..5].join(", "),
        names[5..].join(", "),
        session.sid
    );
    demo.stage.typed(&session.prompt, &format!("{sql};"));
    let found = session.ask(&sql)?;
    let parts = names.iter().map(|name| found.number(0, name));
    Ok(Wait {
        event: found
            .text(0, "last_remote_event")?
            .unwrap_or_default()
            .to_string(),
        instance: found.number(0, "last_remote_instance")?,
        total: found.number(0, "last_remote_micro")?,
        parts: parts.collect::<Result<_, _>>()?,
    })
}

/// Shows a wait for a block. Two rows are in one block. No session waits for the other's row, but
/// the block has to travel.
pub fn for_a_block(demo: &mut Demo) -> Result<(), Failure> {
    demo.stage.step(
        "Who made me wait? A block",
        "The two rows are in one block. Instance 1 changes ann's row and does not commit. Instance \
         2 changes bob's row: no row lock is in its way, but it needs the block. The block may \
         leave instance 1 as soon as the redo of its changes is on disk, committed or not. \
         v$session_wait then tells of the last wait of that session (sid is its number) for \
         another instance: how long it was, and what the time went to.",
    );
    let (mut one, mut two) = (demo.cluster.session(1)?, demo.cluster.session(2)?);
    demo.do_it(&mut one, "begin")?;
    demo.show(
        &mut one,
        "update account set balance = balance - 10 where id = 1",
    )?;
    demo.do_it(&mut two, "begin")?;
    demo.show(
        &mut two,
        "update account set balance = balance + 10 where id = 2",
    )?;
    let wait = last_wait(demo, &mut two)?;
    demo.stage.line(
        "The answer is one row. It is turned here: a line for each column; share and meaning added.",
    );
    let longest = wait.show(demo, &BLOCK_PARTS);
    demo.claims.hold(
        wait.event.starts_with("gc current block") && wait.instance == 1,
        || {
            format!(
                "instance 2 waited for \"{}\" of instance {}",
                wait.event, wait.instance
            )
        },
    )?;
    demo.claims
        .check(parts_add_up(wait.total, &wait.parts, 0))?;
    demo.do_it(&mut two, "commit")?;
    demo.do_it(&mut one, "commit")?;
    let after = demo.show(
        &mut two,
        "select id, owner, balance from account order by id",
    )?;
    demo.claims
        .hold(after.numbers("balance")? == [90, 111], || {
            format!("the balances are {:?}", after.rows)
        })?;
    demo.stage.notice(&format!(
        "the parts add up to the wait, to the microsecond. The longest is {longest}. So you know \
         which instance made you wait, and whether the network, its sessions, its log disk or your \
         own processor is to blame. What no clock saw is shared out to the two messages. The wait's name, \"{}\", begins with gc as all waits for another instance's blocks \
         do. The view v$gc_latency has the same parts for all waits of an instance, with \
         percentiles.",
        wait.event
    ));
    Ok(())
}

/// Shows who blocks whom while the wait lasts. Returns the blocked session's wait so far, in
/// microseconds.
fn show_blocker(demo: &mut Demo, watcher: &mut Session, holder: &Session) -> Result<i64, Failure> {
    let sql = "select inst_id, sid, event, wait_time_micro,\n       blocking_instance, blocking_session\n  \
                 from gv$session where blocking_instance is not null";
    let found = until("the wait to show in gv$session", || {
        let found = watcher.ask(sql)?;
        let waits = !found.rows.is_empty() && found.number(0, "wait_time_micro")? >= HELD_MICRO;
        Ok(waits.then_some(found))
    })?;
    demo.stage.typed(&watcher.prompt, &format!("{sql};"));
    demo.stage.answer(&found);
    let blocker = (
        found.number(0, "blocking_instance")?,
        found.number(0, "blocking_session")?,
    );
    let expected = (i64::from(holder.instance), holder.sid);
    demo.claims
        .hold(found.rows.len() == 1 && blocker == expected, || {
            format!(
                "the row is held by session {expected:?}, and gv$session has {:?}",
                found.rows
            )
        })?;
    let sql = format!(
        "select username, status, sql_text from gv$session\n where inst_id = {} and sid = {}",
        holder.instance, holder.sid
    );
    let of_holder = demo.show(watcher, &sql)?;
    let status = of_holder.text(0, "status")?;
    demo.claims.hold(status == Some("INACTIVE"), || {
        format!("the holder is {status:?}, not idle in its transaction")
    })?;
    found.number(0, "wait_time_micro")
}

/// Shows a wait for a row. The second session waits until the first one's transaction ends.
pub fn for_a_row(demo: &mut Demo) -> Result<(), Failure> {
    demo.stage.step(
        "Who made me wait? A row",
        "Now both instances change ann's row. Instance 1 leaves its transaction open, as an \
         application does that forgot to commit. Instance 2 has to wait. A second session of \
         instance 2, the watcher, asks gv$session, which has a row for each session of every \
         instance, who waits and for whom. Once the wait is over, v$session_gc_latency has its \
         parts.",
    );
    let (mut one, mut two) = (demo.cluster.session(1)?, demo.cluster.session(2)?);
    let mut watcher = demo.cluster.named_session(2, "watcher")?;
    demo.do_it(&mut one, "begin")?;
    demo.show(
        &mut one,
        "update account set balance = balance - 10 where id = 1",
    )?;
    let sql = "update account set balance = balance + 25 where id = 1";
    demo.stage.typed(&two.prompt, &format!("{sql};"));
    demo.stage.line("... waits");
    let blocked = std::thread::Builder::new()
        .name("blocked".into())
        .spawn(move || {
            let done = two.ask(sql);
            (two, done)
        })?;
    let seen_waiting = show_blocker(demo, &mut watcher, &one)?;
    demo.claims.hold(!blocked.is_finished(), || {
        "instance 2 did not wait".to_string()
    })?;
    demo.do_it(&mut one, "commit")?;
    let (mut two, done) = blocked
        .join()
        .map_err(|_| Failure("the waiting session broke an invariant".into()))?;
    let done = done?;
    demo.stage.line(&format!(
        "the update on instance 2 goes on and is done: {} changed",
        done.changed
    ));
    let wait = row_wait(demo, &mut two)?;
    demo.stage.line(
        "Shown of the answer: part and time_waited_micro of each row; share and meaning are added.",
    );
    let longest = wait.show(demo, &ROW_PARTS);
    demo.claims.check(parts_add_up(
        wait.total,
        &wait.parts,
        wait.parts.len() as i64,
    ))?;
    demo.claims.hold(wait.instance == 1 && wait.total >= seen_waiting, || {
        format!(
            "instance 2 waited {} microseconds for instance {}, and was seen waiting for {seen_waiting}",
            wait.total, wait.instance
        )
    })?;
    demo.claims.hold(longest == "in use", || {
        format!("the longest part is {longest}, not the holder's transaction")
    })?;
    let after = demo.show(
        &mut two,
        "select id, owner, balance from account order by id",
    )?;
    demo.claims
        .hold(after.numbers("balance")? == [105, 111], || {
            format!("the balances are {:?}", after.rows)
        })?;
    demo.stage.notice(
        "while the wait lasts, gv$session names the instance and the session that hold the row \
         (in \"enq: TX - row lock contention\", enq is an enqueue, a lock with a queue, and TX a \
         transaction). Afterwards the wait has the same parts as that for a block: here nearly all \
         of the time is that of the open transaction, not of the network or the disk. Neither \
         change was lost.",
    );
    Ok(())
}

/// Reads the session's waits for rows. There was one.
fn row_wait(demo: &mut Demo, session: &mut Session) -> Result<Wait, Failure> {
    let sql = format!(
        "select instance, part, total_waits, time_waited_micro from v$session_gc_latency\n \
          where sid = {} and event = '{ROW_WAIT}'",
        session.sid
    );
    demo.stage.typed(&session.prompt, &format!("{sql};"));
    let found = session.ask(&sql)?;
    let of = |part: &str| {
        for row in 0..found.rows.len() {
            if found.text(row, "part")? == Some(part) {
                return found.number(row, "time_waited_micro");
            }
        }
        Err(Failure(format!("{ROW_WAIT} has no part \"{part}\"")))
    };
    let parts = ROW_PARTS
        .iter()
        .map(|(part, _)| of(part))
        .collect::<Result<_, _>>()?;
    let wait = Wait {
        event: ROW_WAIT.to_string(),
        instance: found.number(0, "instance")?,
        total: of("total")?,
        parts,
    };
    let waits = found.number(0, "total_waits")?;
    demo.claims.hold(waits == 1, || {
        format!("the session waited {waits} times for a row")
    })?;
    Ok(wait)
}
