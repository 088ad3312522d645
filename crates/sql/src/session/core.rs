//! What the execution of statements works on: the engine's session, the dictionary as this session sees it, settings.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use block::value::DatumRef;

use super::cursors::Cursors;
use super::objects::SessionObjects;
use super::random::Random;
use super::settings::Settings;
use crate::api::{Notice, SideMessages};
use crate::database::{Database, Publication};
use crate::dict::{Change, Dict, Table, path};
use crate::error::{Error, Result};
use crate::exec::events::RowEvents;
use crate::exec::profile::Profile;
use crate::exec::with::WithRun;
use crate::parse::backslashes::{self, Reread};
use crate::pgtype::{IoSettings, Objects};
use crate::prepared::Prepared;
use crate::trace::SessionTrace;

/// Microseconds between 1970 and 2000.
const UNIX_TO_PG_MICROS: i64 = 946_684_800_000_000;

/// Row buffers up to this size are kept between statements.
const MAX_KEPT_BUFFER_BYTES: usize = 64 << 10;

pub struct Core {
    pub database: Arc<Database>,
    pub engine: engine::Session,
    /// The name of the role by whose rights statements run.
    pub user: String,
    pub session_user: String,
    pub roles: super::roles::Roles,
    pub database_name: String,
    pub settings: Settings,
    pub io: IoSettings,
    pub messages: SideMessages,
    /// Changes published by the commit that is under way.
    published: Option<Publication>,
    /// The dictionary with this transaction's changes, while there are any.
    own_dict: Option<Arc<Dict>>,
    /// The same for who writes and reads the names of objects.
    objects: Arc<SessionObjects>,
    /// The names of `search_path`.
    pub searched: Vec<String>,
    pub temporary: super::temporary::Temporary,
    /// The schemas of these names in the committed dictionary of a version.
    path: RefCell<(u64, Arc<[u32]>)>,
    /// Uncommitted changes of the dictionary, in order.
    changes: Vec<Change>,
    /// Values last drawn by this session, by sequence.
    pub drawn: HashMap<u32, i64>,
    pub last_drawn: Option<u32>,
    pub statement_start: i64,
    pub transaction_start: i64,
    /// Rises at each end of a transaction, savepoint, and rollback to one.
    pub mark: u64,
    /// Portals begun at these marks ended when the mark last rose.
    pub lost: std::ops::Range<u64>,
    /// Statements by name, of the protocol's Parse and of PREPARE.
    pub prepared: Prepared,
    pub cursors: Cursors,
    /// Statements on the tables of large objects.
    pub large: crate::large::Statements,
    /// What LISTEN and NOTIFY have said in this transaction.
    pub(super) notices: super::notices::Pending,
    /// The statement that `v$session` shows.
    pub(super) shown: Option<Arc<str>>,
    /// Since when `shown` is shown: the start of its statement.
    pub(super) shown_since: i64,
    /// While EXPLAIN ANALYZE runs a statement, or one runs whose plan is traced.
    pub profile: Option<Box<Profile>>,
    /// Where the session says in which step of its plan it is.
    pub step: wait::StepPlace,
    /// The plan that samples of the session look its step up in.
    pub(super) shown_plan: Option<Arc<wait::PlanSteps>>,
    pub(super) trace: SessionTrace,
    /// What the running statement's subqueries have come to.
    pub running: crate::query::run::Running,
    /// What the items of the running statement's WITH have come to, if it has parts that write.
    pub with: Option<Box<WithRun>>,
    /// What rows that were changed leave to be done.
    pub events: RowEvents,
    /// While a suspended portal goes on: what keeps its snapshot, since the session no longer does.
    pub held: Option<engine::HeldSnapshot>,
    /// What the session keeps of bodies of functions.
    pub pl: crate::pl::Known,
    /// A function runs by its owner's rights, which no parameter changes.
    pub(super) definer: bool,
    spare: Vec<DatumRef<'static>>,
    row_buffer: Vec<u8>,
    pub(super) random: Random,
}

pub fn now_micros() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    since.as_micros() as i64 - UNIX_TO_PG_MICROS
}

impl Core {
    pub fn new(database: &Arc<Database>, user: &str, database_name: &str) -> Result<Core> {
        let settings = Settings::new(database.params());
        let now = now_micros();
        let mut core = Core {
            database: database.clone(),
            engine: database.engine().session()?,
            user: user.to_string(),
            session_user: user.to_string(),
            roles: super::roles::Roles::of(&database.dict(), user),
            database_name: database_name.to_string(),
            settings,
            io: IoSettings::default(),
            messages: SideMessages::default(),
            published: None,
            own_dict: None,
            objects: Arc::new(SessionObjects::new(database, database_name)),
            searched: Vec::new(),
            temporary: Default::default(),
            path: RefCell::new((u64::MAX, Arc::new([]))),
            changes: Vec::new(),
            drawn: HashMap::new(),
            last_drawn: None,
            statement_start: now,
            transaction_start: now,
            mark: 0,
            lost: 0..0,
            prepared: Prepared::default(),
            cursors: Cursors::default(),
            large: Default::default(),
            notices: Default::default(),
            shown: None,
            shown_since: 0,
            profile: None,
            step: wait::session::step_place(),
            shown_plan: None,
            trace: SessionTrace::default(),
            running: Default::default(),
            with: None,
            events: RowEvents::default(),
            held: None,
            pl: crate::pl::Known::default(),
            definer: false,
            spare: Vec::new(),
            row_buffer: Vec::new(),
            random: Random::of(now as u64 ^ (std::process::id() as u64) << 32),
        };
        core.settings.set_initial("session_authorization", user)?;
        // Sessions of the instance itself, which are in no database, are as the instance says.
        if !database_name.is_empty() {
            let mut settings = database.with_dict(|dict| dict.settings_of(core.roles.session));
            // A role that it is no member of has no effect, as any value that is none.
            settings.retain(|(name, value)| core.check_role(name, value).is_ok());
            core.settings.set_defaults(settings);
            core.follow_roles();
        }
        core.io = core.settings.io(now, core.objects())?;
        core.follow_path();
        Ok(core)
    }

    /// The dictionary as this transaction sees it, through the session's search path.
    pub fn dict(&self) -> Arc<Dict> {
        let dict = match &self.own_dict {
            Some(own) => own.clone(),
            None => self.database.dict(),
        };
        let path = self.path_in(&dict);
        match path == *dict.path() {
            true => dict,
            false => Arc::new(dict.seen_by(path)),
        }
    }

    fn set_own_dict(&mut self, own: Option<Arc<Dict>>) {
        self.objects.set_own(own.clone());
        self.own_dict = own;
    }

    /// The names of objects as this session sees them, from now on.
    pub fn objects(&self) -> Objects {
        Objects(Some(self.objects.clone()))
    }

    /// The schemas in which names are looked up.
    pub(super) fn path_in(&self, dict: &Dict) -> Arc<[u32]> {
        if self.own_dict.is_some() {
            return dict.path_of(&self.searched, self.roles.current);
        }
        let mut known = self.path.borrow_mut();
        if known.0 != dict.version() {
            let path = dict.path_of(&self.searched, self.roles.current);
            *known = (dict.version(), path);
        }
        known.1.clone()
    }

    /// The same in the committed dictionary.
    pub fn path(&self) -> Arc<[u32]> {
        self.database.with_dict(|dict| self.path_in(dict))
    }

    /// Looks names up in a schema first. The names of the path as it was, to be put back by who has
    /// changes of the dictionary of its own, so that nothing was kept of the path.
    pub fn search_first(&mut self, schema: String) -> Vec<String> {
        let outside = self.searched.clone();
        self.searched.insert(0, schema);
        outside
    }

    /// Takes in what `search_path` says.
    pub fn follow_path(&mut self) {
        self.searched = path::names_of(&self.settings.get("search_path"), &self.user);
        self.place_temporary();
        self.objects
            .set_searched(self.searched.clone(), self.roles.current);
        // No picture has this version.
        *self.path.get_mut() = (u64::MAX, Arc::new([]));
    }

    /// Takes in what others have changed in the dictionary, below this transaction's own changes too.
    pub fn refresh(&mut self) -> Result<()> {
        self.database.refresh()?;
        if let Some(own) = &self.own_dict {
            let committed = self.database.dict();
            if own.version() != committed.version() {
                let own = committed.with(&self.changes);
                self.set_own_dict(Some(Arc::new(own)));
            }
        }
        Ok(())
    }

    pub fn has_own_dict(&self) -> bool {
        self.own_dict.is_some()
    }

    /// Whether the table's rows are where nobody else sees any: it was created or truncated in this transaction.
    pub fn is_own_segment(&self, table: &Table) -> bool {
        self.database.with_dict(|committed| {
            let known = committed.table_by_oid(table.oid);
            known.is_none_or(|t| t.segment != table.segment)
        })
    }

    /// Takes in a change that was just written to the dictionary's table.
    pub fn changed(&mut self, change: Change) {
        let next = self.dict().with(std::slice::from_ref(&change));
        self.set_own_dict(Some(Arc::new(next)));
        self.changes.push(change);
    }

    /// How many changes there are: what a savepoint remembers.
    pub fn change_count(&self) -> usize {
        self.changes.len()
    }

    /// Forgets the changes after a savepoint, or all.
    pub fn forget_changes(&mut self, keep: usize) {
        if self.changes.len() <= keep {
            return;
        }
        let undone = self.changes.split_off(keep);
        let own = match self.changes.is_empty() {
            true => None,
            false => Some(Arc::new(self.database.dict().with(&self.changes))),
        };
        self.set_own_dict(own);
        let left = self.dict().left_without(&undone);
        self.database.forget_segments(&left);
    }

    /// Makes the changes everybody's. Called at commit while the transaction's locks are held. After an error nothing is published.
    pub fn publish_changes(&mut self) -> Result<()> {
        if !self.changes.is_empty() {
            self.engine.dictionary_changes()?;
            let changes = std::mem::take(&mut self.changes);
            let number = match self.database.logs_changes() {
                true => Some(self.log_changes(&changes)?),
                false => None,
            };
            self.published = Some(self.database.publish(&changes, number));
            self.set_own_dict(None);
        }
        Ok(())
    }

    /// The commit of what was published is over.
    pub fn changes_committed(&mut self) {
        if let Some(publication) = self.published.take() {
            self.database.committed(publication);
        }
    }

    pub fn notice(
        &mut self,
        severity: &'static str,
        sqlstate: &'static str,
        message: impl Into<String>,
    ) {
        self.tell(Notice {
            severity,
            sqlstate: sqlstate.into(),
            message: message.into(),
            detail: None,
            hint: None,
        });
    }

    /// Sends a message beside the results, if `client_min_messages` lets it through, and logs it, if
    /// `log_min_messages` does.
    pub fn tell(&mut self, notice: Notice) {
        self.log_notice(&notice);
        let least = self.settings.get("client_min_messages");
        if notice.is_wanted(&least) {
            self.messages.notices.push(notice);
        }
    }

    /// A text that is read as the session's settings say, in the words that all read alike.
    /// `None`: it is that already.
    pub fn reread(&mut self, sql: &str) -> Result<Option<Reread>> {
        let found = backslashes::reread(sql, self.settings.hot().backslashes)?;
        for (message, hint) in found.iter().flat_map(|f| &f.warnings) {
            self.tell(Notice {
                severity: "WARNING",
                sqlstate: "22P06".into(),
                message: message.to_string(),
                detail: None,
                hint: Some(hint.to_string()),
            });
        }
        Ok(found)
    }

    /// Whether the client wants the lines of DBMS_OUTPUT.
    pub fn serves_output(&self) -> bool {
        self.settings.get("serveroutput") == "on"
    }

    pub fn notice_with_detail(&mut self, message: String, detail: String) {
        self.tell(Notice {
            severity: "NOTICE",
            sqlstate: "00000".into(),
            message,
            detail: Some(detail),
            hint: None,
        });
    }

    /// After changes of parameters: what depends on them, and what the client is told.
    pub fn parameters_changed(&mut self) -> Result<()> {
        self.follow_roles();
        self.io = self.settings.io(self.transaction_start, self.objects())?;
        self.follow_path();
        let news = self.settings.news();
        self.messages.parameters.extend(news);
        Ok(())
    }

    /// What began at this mark or later has ended.
    pub fn lose_since(&mut self, mark: u64) {
        self.mark += 1;
        self.lost = mark..self.mark;
    }

    /// An empty vector for a row's values, with the memory of the last.
    pub fn take_spare(&mut self) -> Vec<DatumRef<'static>> {
        std::mem::take(&mut self.spare)
    }

    pub fn put_spare(&mut self, spare: Vec<DatumRef<'static>>) {
        self.spare = spare;
    }

    /// A buffer for stored rows, likewise.
    pub fn take_row_buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.row_buffer)
    }

    pub fn put_row_buffer(&mut self, buffer: Vec<u8>) {
        // One large row must not stay with every session for ever.
        if buffer.capacity() <= MAX_KEPT_BUFFER_BYTES {
            self.row_buffer = buffer;
        }
    }

    pub fn random_bits(&mut self) -> u64 {
        self.random.bits()
    }
}

pub fn cancelled() -> Error {
    Error::new("57014", "canceling statement due to user request")
}
