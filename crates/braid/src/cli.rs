//! Commands and flags.

mod labs;
mod settings;

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand};

pub use settings::{DataArgs, SettingArgs};

pub use labs::{
    AllArgs, BatchIsolationArgs, Lab, LabArgs, LabCommand, LmsStarvationArgs, LogoutStormArgs,
    NetCheckArgs, NetCheckLabArgs, RowCacheArgs, SequenceCacheArgs, SlowLogArgs,
    SmallTableIndexArgs,
};

/// The database directory of commands that name none.
pub const DEFAULT_DATA: &str = "braid-data";

const EXAMPLES: &str = "\
Examples:
  braid demo                                   what two instances of one database do, with what it prints, in ten seconds or so
  braid up                                     create ./braid-data if need be, start an instance, Ctrl-C stops it
  braid up --data /db --buffer-cache 4GB --detach
  psql postgresql://127.0.0.1:5501/braid       connect to instance 1
  braid status --data /db --json
  braid up --data /db --instances 2            two instances over one database
  braid stop 2 --data /db                      takes one out; braid start 2 brings it back
  braid down --data /db
  braid lab sequence-cache                     an experiment of the papers, with its figures and ours
  braid verify --data /db                      read every block and index of a stopped database";

/// The numbers that instances can have, and how many there can be.
const INSTANCES: RangeInclusive<u16> = 1..=block::FileId::MAX_INSTANCES;

/// Reads the number of a flag. What is none of these numbers is refused with the range, which says
/// more than "invalid digit".
fn number<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| match text.parse() {
        Ok(n) if range.contains(&n) => Ok(n),
        _ => Err(format!("{} to {} are possible", range.start(), range.end())),
    }
}

#[derive(Parser)]
#[command(name = "braid", version, about = "Braid: a SQL database of several instances over one set of files", after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Start the database, creating it if there is none, and keep it running until Ctrl-C
    #[command(after_help = UP_EXAMPLES)]
    Up(UpArgs),
    /// Run one instance in the foreground (what `up` starts for each)
    #[command(after_help = INSTANCE_EXAMPLES)]
    Instance(InstanceArgs),
    /// Start one more instance of a database, or one that was stopped
    #[command(after_help = "Example:\n  braid start 2 --data /db")]
    Start(StartArgs),
    /// Stop one instance of a database on this machine cleanly; the others go on
    #[command(after_help = "Example:\n  braid stop 2 --data /db")]
    Stop(StopArgs),
    /// Stop all instances of a database on this machine cleanly
    #[command(after_help = "Example:\n  braid down --data /db")]
    Down(DataArgs),
    /// Show the state of a database's instances
    #[command(after_help = "Examples:\n  braid status\n  braid status --data /db --json")]
    Status(StatusArgs),
    /// Manage the names under which applications connect, and the instances that serve them
    #[command(after_help = SERVICE_EXAMPLES)]
    Service(ServiceArgs),
    /// Make the certificates by which instances on several hosts know each other; existing ones
    /// stay
    #[command(after_help = "Example:\n  braid certificates --data /shared/db --instances 3")]
    Certificates(CertificatesArgs),
    /// Read every block and index of a stopped database and report every inconsistency; exit code 1
    /// if there is one
    #[command(after_help = "Example:\n  braid verify --data /db")]
    Verify(VerifyArgs),
    /// Report what all instances did between two snapshots
    #[command(after_help = REPORT_EXAMPLES)]
    Report(ReportArgs),
    /// Show what active sessions did in a span of time
    #[command(
        after_help = "Examples:\n  braid ash --data /db\n  braid ash --minutes 5 --by event,sql --instance 2\n  braid ash --from '2026-11-26 14:00' --to '2026-11-26 14:20' --format html --output ash.html"
    )]
    Ash(AshArgs),
    /// Show the waits of sessions one by one, as far as somebody wants them kept
    Timeline(TimelineArgs),
    /// Say what takes the time, with evidence and remedy: of the next seconds, or between snapshots
    #[command(
        after_help = "Examples:\n  braid doctor --data /db\n  braid doctor --seconds 60\n  braid doctor --from 7 --to 8"
    )]
    Doctor(DoctorArgs),
    /// Add up SQL trace files by statement: this product's, and Oracle's of event 10046
    #[command(after_help = TKPROF_EXAMPLES)]
    Tkprof(TkprofArgs),
    /// Show on throw-away data what two instances of one database do, and check every claim; exit
    /// code 1 if one does not hold
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// Run an experiment of the papers (docs/design.md) and print its figures beside theirs
    #[command(after_help = labs::LAB_EXAMPLES)]
    Lab(LabCommand),
    /// How far away instances are, what a connection to them carries, and what clamps it
    #[command(after_help = labs::NET_CHECK_EXAMPLES)]
    NetCheck(NetCheckArgs),
}

const REPORT_EXAMPLES: &str = "\
Examples:
  braid report --data /db                      between the last two snapshots
  braid report --list                          which snapshots there are
  braid report --from 7 --to 9 --instance 2 --format html --output report.html
  braid report --from 7 --to 8 --diff 8,9      what changed from one span to another

Snapshots are taken every snapshot_interval, and by  select create_snapshot()";

/// Whom to ask.
#[derive(Args)]
pub struct Source {
    #[command(flatten)]
    pub data: DataArgs,
    /// User to connect as, a superuser; its password is read from PGPASSWORD [default: the system's
    /// user]
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    Text,
    Html,
}

/// How a report is shown.
#[derive(Args)]
pub struct Shown {
    /// Text for a terminal, or one file of HTML with charts
    #[arg(long, value_name = "text|html", default_value = "text")]
    pub format: Format,
    /// File to write [default: the terminal]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Args)]
pub struct ReportArgs {
    #[command(flatten)]
    pub source: Source,
    /// Snapshot at the begin [default: the one before the end]
    #[arg(long, value_name = "N")]
    pub from: Option<i64>,
    /// Snapshot at the end [default: the last one]
    #[arg(long, value_name = "N")]
    pub to: Option<i64>,
    /// Report one instance
    #[arg(long, value_name = "K", value_parser = number(INSTANCES))]
    pub instance: Option<u16>,
    /// Report all instances together, as is done if none is named
    #[arg(long, conflicts_with = "instance")]
    pub global: bool,
    /// Compare with the span between these two snapshots
    #[arg(long, value_name = "FROM,TO", value_delimiter = ',')]
    pub diff: Option<Vec<i64>>,
    /// Show the snapshots that there are
    #[arg(long)]
    pub list: bool,
    #[command(flatten)]
    pub shown: Shown,
}

#[derive(Args)]
pub struct AshArgs {
    #[command(flatten)]
    pub source: Source,
    /// Minutes until the end, if there is no --from
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = number(1u32..=525_600))]
    pub minutes: u32,
    /// Begin of the span
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// End of the span [default: now]
    #[arg(long, value_name = "TIME")]
    pub to: Option<String>,
    /// What to count by: event, sql, plan-step, session, object, instance, blocker [default: all of
    /// these]
    #[arg(long, value_name = "WHAT,...", value_delimiter = ',')]
    pub by: Vec<String>,
    /// Show one instance
    #[arg(long, value_name = "K", value_parser = number(INSTANCES))]
    pub instance: Option<u16>,
    #[command(flatten)]
    pub shown: Shown,
}

#[derive(Args)]
pub struct TimelineArgs {
    #[command(flatten)]
    pub source: Source,
    /// Show one timeline, by its number
    #[arg(long, value_name = "N")]
    pub number: Option<i64>,
    /// Show those of one session
    #[arg(long, value_name = "SID")]
    pub session: Option<u32>,
    /// Show one instance
    #[arg(long, value_name = "K", value_parser = number(INSTANCES))]
    pub instance: Option<u16>,
    #[command(flatten)]
    pub shown: Shown,
}

#[derive(Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub source: Source,
    /// Seconds to look, if no snapshot is named
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = number(1u32..=3600))]
    pub seconds: u32,
    /// Snapshot at the begin
    #[arg(long, value_name = "N")]
    pub from: Option<i64>,
    /// Snapshot at the end
    #[arg(long, value_name = "N")]
    pub to: Option<i64>,
    /// Look at one instance
    #[arg(long, value_name = "K", value_parser = number(INSTANCES))]
    pub instance: Option<u16>,
    #[command(flatten)]
    pub shown: Shown,
}

const TKPROF_EXAMPLES: &str = "\
Examples:
  braid tkprof braid-data/trace/braid1_ora_5.trc
  braid tkprof --sort exeela,fchela --print 10 braid-data/trace/*.trc
  braid tkprof --aggregate no braid1_ora_5.trc braid2_ora_9.trc      users and instances kept apart

Sort keys: prs, exe or fch (parse, execute, fetch) with cnt, cpu, ela, dsk, qry, cu, mis or row;
userid. Exit code 1, without a table, if a file is no trace, or damaged.";

#[derive(Args)]
pub struct TkprofArgs {
    /// Trace files, of one instance or several
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Statements with the greatest sum of these come first [default: in order of appearance]
    #[arg(long, value_name = "KEY,...", value_delimiter = ',')]
    pub sort: Vec<sqltrace::SortKey>,
    /// Whether a statement of several users or instances is one
    #[arg(long, value_name = "yes|no", default_value = "yes")]
    pub aggregate: YesNo,
    /// The most statements to print; the totals are of all
    #[arg(long, value_name = "N")]
    pub print: Option<usize>,
    /// Leave damaged lines out, and name them, instead of refusing their file
    #[arg(long)]
    pub skip_damaged: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum YesNo {
    Yes,
    No,
}

const DEMO_EXAMPLES: &str = "\
Examples:
  braid demo
  braid demo --pause                           wait for Enter between the steps
  braid demo --data /disk/demo                 an empty directory, or a new one; removed at the end";

#[derive(Args)]
pub struct DemoArgs {
    /// Directory for the demo's database, which is removed at the end [default: a new one among the
    /// temporary files]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// First of two ports in a row for the demo's instances [default: free ones]
    #[arg(long, value_parser = number(1..=u16::MAX - 1))]
    pub port: Option<u16>,
    /// Wait for Enter between the steps
    #[arg(long)]
    pub pause: bool,
}

const UP_EXAMPLES: &str = "\
Examples:
  braid up
  braid up --data /db --port 6001 --buffer-cache 4GB
  braid up --set recovery_target=50MB --set max_sessions=200 --detach";

const INSTANCE_EXAMPLES: &str = "\
Examples:
  braid instance --data /db --instance 1 --port 5501 --buffer-cache 1GB
  braid instance --data /shared/db --instance 2 --interconnect-address 10.1.0.2 \\
      --listen 10.1.0.2 --set trusted_clients=10.1.0.0/24      on one of several hosts, after braid certificates";

const SERVICE_EXAMPLES: &str = "\
Examples:
  braid service add orders --data /db --preferred 1 --available 2
  psql postgresql://host1:5501,host2:5502/orders        reaches the instance that serves it
  braid service modify orders --data /db --preferred 1,2
  braid service list --data /db --json
  braid service remove orders --data /db";

#[derive(Args)]
pub struct UpArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// How many instances to start
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number(INSTANCES))]
    pub instances: u16,
    /// Return once the instances are open, and leave them running
    #[arg(long)]
    pub detach: bool,
    /// Do not restart instances that died (a lone instance is never restarted)
    #[arg(long)]
    pub no_restart: bool,
    /// Report to the process that started this one, and leave it and the terminal once all are open
    #[arg(long, hide = true)]
    pub background: bool,
    /// Process that started this one; the guard stops its instances when that process ends
    #[arg(long, value_name = "PID", hide = true)]
    pub parent: Option<u32>,
}

#[derive(Args)]
pub struct StartArgs {
    /// Number of the instance, from 1
    #[arg(value_name = "INSTANCE", value_parser = number(INSTANCES))]
    pub instance: u16,
    #[command(flatten)]
    pub settings: SettingArgs,
}

#[derive(Args)]
pub struct StopArgs {
    /// Number of the instance, from 1
    #[arg(value_name = "INSTANCE", value_parser = number(INSTANCES))]
    pub instance: u16,
    #[command(flatten)]
    pub data: DataArgs,
}

#[derive(Args)]
pub struct InstanceArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Number of the instance, from 1
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = number(INSTANCES))]
    pub instance: u16,
    /// Process that started this one: the instance reports to it, and stops when it ends
    #[arg(long, value_name = "PID", hide = true, conflicts_with = "background")]
    pub parent: Option<u32>,
    /// Report to the process that started this one, and leave it and the terminal once open
    #[arg(long, hide = true)]
    pub background: bool,
}

#[derive(Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct ServiceArgs {
    #[command(subcommand)]
    pub command: ServiceCommand,
}

#[derive(Subcommand)]
pub enum ServiceCommand {
    /// Define a service; instances that are up serve it at once
    Add(ServiceDefinition),
    /// Change a service; existing connections stay where they are
    Modify(ServiceDefinition),
    /// Remove a service; its connections go on
    Remove(ServiceName),
    /// Show where services run
    List(StatusArgs),
}

#[derive(Args)]
pub struct ServiceDefinition {
    /// Name of the service; clients give it as the name of the database
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Instances that serve it as long as they are up
    #[arg(long, value_name = "K,...")]
    pub preferred: String,
    /// Instances that take over, in this order, one for each preferred one that is not up
    #[arg(long, value_name = "K,...", default_value = "")]
    pub available: String,
    #[command(flatten)]
    pub data: DataArgs,
}

#[derive(Args)]
pub struct ServiceName {
    #[arg(value_name = "NAME")]
    pub name: String,
    #[command(flatten)]
    pub data: DataArgs,
}

#[derive(Args)]
pub struct CertificatesArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// How many instances the cluster may have
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = number(INSTANCES))]
    pub instances: u16,
    /// Directory to make them in [default: DIR/certificates, where instances look for them]
    #[arg(long, value_name = "DIR")]
    pub to: Option<PathBuf>,
}

#[derive(Args)]
pub struct VerifyArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Directory of the second members of the redo files, if there is one
    #[arg(long, value_name = "DIR")]
    pub redo_mirror: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
