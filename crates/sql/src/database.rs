//! The database as sessions share it: engine, dictionary cache, plan cache, parameters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arc_swap::ArcSwap;
use block::ObjectId;
use engine::Engine;
use parking_lot::Mutex;

use crate::changes::Changes;
use crate::ddl::online;
use crate::dict::role::{FIRST_SUPERUSER, Role};
use crate::dict::{Change, Dict, Heir, check, log, store};
use crate::error::{Error, Result};
use crate::notify::Notices;
use crate::orders::{self, Orders};
use crate::params::Instance;
use crate::plan_cache::PlanCache;
use crate::presence;
use crate::session::{SqlSession, now_micros};
use crate::statements::Statements;
use crate::trace::Switches;
use crate::usage::{self, Usage};

pub struct Database {
    engine: Arc<Engine>,
    /// Set as long as no other instance has changed the dictionary since it was read; none if there is no other.
    current: Option<Arc<AtomicBool>>,
    params: Arc<Instance>,
    /// The committed dictionary. Read without a lock.
    dict: ArcSwap<Dict>,
    /// Held for the making of one picture from another.
    making: Mutex<()>,
    pub(crate) plans: PlanCache,
    pub(crate) notices: Notices,
    pub(crate) orders: Orders,
    pub(crate) switches: Switches,
    pub(crate) changes: Changes,
    pub(crate) statements: Statements,
    pub(crate) usage: Usage,
    started_micros: i64,
    started: Instant,
}

/// Changes that were published: what they dropped is to be forgotten once their commit is over.
pub(crate) struct Publication {
    dropped: Vec<ObjectId>,
    left: Vec<Heir>,
}

/// The objects that are dropped, among them the tables, whose locks have these numbers.
fn dropped(changes: &[Change]) -> impl Iterator<Item = ObjectId> {
    let dropped = changes.iter().filter(|c| c.entry.is_none());
    dropped.filter_map(|c| u32::try_from(c.key).ok().map(ObjectId))
}

impl Database {
    /// Loads the dictionary, and gives back space that belongs to no object of it: what was dropped just before a crash. Not while transactions of
    /// the dead are rolled back, whose objects the dictionary does not know; the next start will do it then.
    pub fn open(engine: Arc<Engine>, params: Arc<Instance>) -> Result<Arc<Database>> {
        let dict = store::load(&engine)?;
        if engine.recovery().is_none_or(|r| r.transactions == 0) {
            engine.drop_orphans(&dict.segments())?;
        }
        let current = engine.dictionary_flag();
        let started_micros = now_micros();
        let database = Arc::new(Database {
            current,
            engine,
            params,
            dict: ArcSwap::from_pointee(dict),
            making: Mutex::default(),
            plans: PlanCache::default(),
            notices: Notices::default(),
            orders: Orders::default(),
            switches: Switches::default(),
            changes: Changes::default(),
            statements: Statements::default(),
            usage: Usage::since(started_micros),
            started_micros,
            started: seam::now(),
        });
        SqlSession::make_first_superuser(&database)?;
        const KINDS: [u8; 5] = [
            orders::ORDER,
            presence::COUNT,
            online::USERS,
            usage::RESET,
            crate::views::QUESTION,
        ];
        // Two kinds of questions with one byte would be taken for each other.
        const _: () = {
            let mut at = 0;
            while at < KINDS.len() {
                let mut other = 0;
                while other < at {
                    assert!(
                        KINDS[at] != KINDS[other],
                        "invariant: kinds of questions differ"
                    );
                    other += 1;
                }
                at += 1;
            }
        };
        if let Some(cluster) = database.engine.cluster() {
            let weak = Arc::downgrade(&database);
            let stopped = || "it is stopping".to_string();
            cluster.inquiries().respond_with(Box::new(move |question| {
                let database = weak.upgrade().ok_or_else(stopped)?;
                match question.first() {
                    Some(&orders::ORDER) => orders::respond(&database, question),
                    Some(&presence::COUNT) => presence::respond(question),
                    Some(&online::USERS) => online::respond(&database, question),
                    Some(&usage::RESET) => usage::respond(&database, question),
                    _ => crate::views::respond(&database, question),
                }
            }));
            let weak = Arc::downgrade(&database);
            cluster.bulletins().hear_with(Box::new(move |bulletin| {
                weak.upgrade().is_none_or(|d| d.notices.hear(bulletin))
            }));
        }
        crate::large::make(&database)?;
        Ok(database)
    }

    /// A number that rises whenever a session may have to be traced that was not, or not any more.
    #[inline]
    pub(crate) fn trace_changes(&self) -> u64 {
        self.switches.changes().wrapping_add(self.params.changes())
    }

    /// The dictionary is read again if another instance has changed it. One load if none has. To be called at the beginning of a statement, and when a lock was got; not in a
    /// transaction that has published its changes and commits.
    #[inline]
    pub(crate) fn refresh(&self) -> Result<()> {
        match &self.current {
            Some(flag) if !flag.load(Ordering::SeqCst) => {
                self.engine.refresh_dictionary(|| self.reload())
            }
            _ => Ok(()),
        }
    }

    /// What is committed is the whole picture: whoever publishes changes has the dictionary exclusively until they are committed, and who reads it has it shared. (Changes that were
    /// published here and put on top, because their session still waited until every instance had heard of its commit, hid what others had changed since: an index of another instance.)
    fn reload(&self) -> Result<()> {
        let _making = self.making.lock();
        let before = self.dict.load_full();
        match log::changes_since(&self.engine, &before)? {
            Some((changes, logged)) => self.take_in(&before, &changes, logged),
            None => self.reload_whole(&before)?,
        }
        check::is_whole(&self.engine, &self.dict.load())
    }

    /// The whole dictionary is read again.
    fn reload_whole(&self, before: &Dict) -> Result<()> {
        let whole = store::load(&self.engine)?;
        let changes = before.changes_to(&whole)?;
        self.take_in(before, &changes, whole.logged());
        Ok(())
    }

    /// Makes the picture after what was committed everybody's, under the lock `making`.
    fn take_in(&self, before: &Dict, changes: &[Change], logged: u64) {
        if changes.is_empty() && logged == before.logged() {
            return;
        }
        self.dict.store(Arc::new(before.successor(changes, logged)));
        self.dictionary_changed(before, changes);
        for segment in before.gone_by(changes) {
            self.engine.forget_segment(segment);
        }
        dropped(changes).for_each(|object| self.engine.forget_lock(object));
        self.forget_segments(&before.left_by(changes));
    }

    /// There is another picture of the dictionary, after these changes of the one before.
    fn dictionary_changed(&self, before: &Dict, changes: &[Change]) {
        let version = before.version() + 1;
        match Dict::changed_statistics(changes) {
            Some(tables) => self.plans.statistics_changed(version, |s| {
                s.tables.iter().any(|(t, _)| tables.contains(&t.oid))
            }),
            None => self.plans.dictionary_changed(version),
        }
        let now = self.dict.load();
        for table in Dict::statistics_among(changes) {
            if let Some(stats) = now.stats(table) {
                let before = before.stats(table).map(|s| &**s);
                self.changes.analyzed(before, stats);
            }
        }
    }

    /// Segments are no more: what is counted of them goes to their heirs.
    pub(crate) fn forget_segments(&self, left: &[Heir]) {
        if !left.is_empty() {
            self.usage.forget(left);
            self.changes.forget(left);
        }
    }

    /// What a client has to prove that says it is this user. A user who does not exist, has no password, or one that has ended, is
    /// asked the same, and proves nothing.
    pub fn verifier(&self, user: &str) -> Result<scram::Verifier> {
        self.refresh()?;
        let dict = self.dict();
        let Some(door) = dict.door() else {
            return Err(Error::internal("the dictionary has no secret of the door"));
        };
        // Both have the same steps: a verifier that is made, and one that is read.
        let mock = door.mock(user).to_string();
        let lasting = |r: &&Arc<Role>| r.valid_until.is_none_or(|until| until >= now_micros());
        let role = dict.role(user).filter(lasting);
        let password = role.and_then(|r| r.password.as_ref());
        let asked = password.map_or(&*mock, |p| p.as_text());
        let read = asked.parse().or_else(|_| mock.parse());
        read.map_err(|_| Error::internal("no verifier is read from what was made of one"))
    }

    /// A seal on these parts for a user, which every instance makes the same. With another password
    /// of the user it is another one.
    pub fn seal(&self, user: &str, parts: &[&[u8]]) -> Result<[u8; 32]> {
        let verifier = self.verifier(user)?.to_string();
        let dict = self.dict();
        let Some(door) = dict.door() else {
            return Err(Error::internal("the dictionary has no secret of the door"));
        };
        let mut all = vec![user.as_bytes(), verifier.as_bytes()];
        all.extend_from_slice(parts);
        Ok(door.seal(&all))
    }

    /// The role of a client that has proved to be this user.
    pub fn admit(&self, user: &str) -> Result<Arc<Role>> {
        self.refresh()?;
        let role = self.dict().role(user).cloned();
        let role = role.ok_or_else(|| crate::service::no_role(user))?;
        match role.login {
            true => Ok(role),
            false => Err(Error::new(
                "28000",
                format!("role \"{user}\" is not permitted to log in"),
            )),
        }
    }

    /// The superuser that the first start made, and whether it has a password.
    pub fn first_superuser(&self) -> Option<(String, bool)> {
        let dict = self.dict();
        let role = dict.role_by_oid(FIRST_SUPERUSER)?;
        Some((role.name.clone(), role.password.is_some()))
    }

    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub fn params(&self) -> &Arc<Instance> {
        &self.params
    }

    /// Whether other instances read what was changed from the log.
    pub(crate) fn logs_changes(&self) -> bool {
        self.current.is_some()
    }

    /// The committed dictionary.
    pub fn dict(&self) -> Arc<Dict> {
        self.dict.load_full()
    }

    /// Looks at the committed dictionary without keeping it.
    pub(crate) fn with_dict<R>(&self, look: impl FnOnce(&Dict) -> R) -> R {
        look(&self.dict.load())
    }

    /// Makes changes everybody's. `number`: that of their commit in the log, if others read it.
    pub(crate) fn publish(&self, changes: &[Change], number: Option<u64>) -> Publication {
        let _making = self.making.lock();
        let before = self.dict.load_full();
        self.dict.store(Arc::new(before.published(changes, number)));
        self.dictionary_changed(&before, changes);
        Publication {
            left: before.left_by(changes),
            dropped: dropped(changes).collect(),
        }
    }

    /// The transaction that published it has committed, or its instance is about to end.
    pub(crate) fn committed(&self, publication: Publication) {
        for object in publication.dropped {
            self.engine.forget_segment(object);
            self.engine.forget_lock(object);
        }
        self.forget_segments(&publication.left);
    }

    /// When the instance was opened, in microseconds from 2000.
    pub fn started_micros(&self) -> i64 {
        self.started_micros
    }

    /// For how long the instance has been open, in microseconds. No clock that is set moves it.
    pub fn up_micros(&self) -> u64 {
        u64::try_from(seam::elapsed(self.started).as_micros()).unwrap_or(u64::MAX)
    }
}

/// The tables of a database as the engine sees them, for checks.
pub fn tables_of(engine: &Arc<Engine>) -> Result<Vec<Arc<engine::TableDef>>> {
    Ok(store::load(engine)?
        .tables()
        .map(|t| t.engine().clone())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Params, RowSink};
    use crate::session::SqlSession;
    use block::value::DatumRef;
    use engine::{Config, Progress};

    struct Quiet;

    impl Progress for Quiet {
        fn step(&self, _: &str, _: u64, _: u64) {}
    }

    struct NoRows;

    impl RowSink for NoRows {
        fn row(&mut self, _: &[DatumRef<'_>]) -> Result<()> {
            panic!("no rows are asked for")
        }
    }

    fn execute(session: &mut SqlSession, sql: &str) {
        let statement = session.parse(sql, &[]).unwrap();
        let mut portal = session.bind(&statement, Params::default()).unwrap();
        session.execute(&mut portal, 0, &mut NoRows).unwrap();
        session.sync().unwrap();
    }

    /// A database in a directory of its own.
    fn opened(name: &str) -> (std::path::PathBuf, Arc<Engine>, Arc<Database>) {
        let dir = std::env::temp_dir().join(format!("braid-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let mut config = Config::new(&dir);
        config.buffer_bytes = 16 << 20;
        config.redo_file_bytes = 8 << 20;
        config.max_sessions = 100;
        config.preallocate_bytes = 1 << 20;
        engine::Engine::create(&config, &Quiet).unwrap();
        let engine = engine::Engine::open(config, &Quiet).unwrap();
        let params = Instance::new(None);
        params.state("superuser", "tester".into());
        let database = Database::open(engine.clone(), Arc::new(params)).unwrap();
        (dir, engine, database)
    }

    /// The steps of a failed exchange, by which a client with a clock could tell a user who exists
    /// from one who does not.
    fn steps(database: &Database, user: &str) -> scram::count::Steps {
        let ((), steps) = scram::count::steps_of(|| {
            let verifier = database.verifier(user).unwrap();
            let first = b"n,,n=,r=nonce";
            let (exchange, answer) =
                scram::Exchange::begin(scram::Mechanism::Plain, None, verifier, first).unwrap();
            let nonce = answer.split(',').next().unwrap();
            let proof = "A".repeat(43);
            let last = format!("c=biws,{nonce},p={proof}=");
            assert_eq!(exchange.finish(last.as_bytes()), Ok(scram::Proof::Wrong));
        });
        steps
    }

    #[test]
    fn a_wrong_user_takes_the_steps_of_a_wrong_password() {
        let (dir, engine, database) = opened("steps");
        let mut session = SqlSession::new(&database, "tester", "braid", &[]).unwrap();
        for sql in [
            "create user ann password 'tiger'",
            "create user bare",
            "create user late password 'x' valid until '2020-01-01'",
            "create role closed password 'x'",
        ] {
            execute(&mut session, sql);
        }
        let known = steps(&database, "ann");
        assert_eq!(known.rounds, 0, "no password is hashed for a client");
        assert!(known.hashes > 0 && known.verifiers > 0 && known.random_bytes > 0);
        for user in ["eve", "bare", "late", "closed", ""] {
            assert_eq!(steps(&database, user), known, "{user:?}");
        }
        drop(session);
        drop(database);
        engine.stop(&Quiet).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// Found by histories: `create table` here, whose session waited for another instance to hear of its commit, `create index` there, an insert here without an entry in that index.
    #[test]
    fn what_is_read_is_not_hidden_by_what_was_published_before() {
        let (dir, engine, database) = opened("publication");
        let mut session = SqlSession::new(&database, "tester", "braid", &[]).unwrap();
        execute(&mut session, "create table t (id bigint)");
        let created = database.dict().table("t").unwrap().oid;
        let key = i64::from(created);
        let entry = database.dict().entry(key).cloned();
        // As if its session had not returned from its commit yet.
        let publication = database.publish(&[Change { key, entry }], None);
        execute(&mut session, "create index on t (id)");
        let before = database.dict();
        database.reload_whole(&before).unwrap();
        assert_eq!(database.dict().table("t").unwrap().indexes.len(), 1);
        database.committed(publication);
        drop(session);
        drop(database);
        engine.stop(&Quiet).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
