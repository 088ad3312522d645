//! The arguments of `braid lab` and `braid net-check`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{DataArgs, number};

pub const LAB_EXAMPLES: &str = "\
Examples:
  braid lab sequence-cache                     about half a minute; databases in a temporary directory
  braid lab sequence-cache --rows 2000 --rounds 1
  braid lab batch-isolation --threads 5 --json
  braid lab batch-isolation --data /disk/lab --keep
  braid lab all                                one after the other, and which goals were reached

Exit code 1 if something that the lab expects was not reached.";

#[derive(Args)]
#[command(arg_required_else_help = true)]
pub struct LabCommand {
    /// List the labs
    #[arg(long)]
    pub list: bool,
    #[command(subcommand)]
    pub lab: Option<Lab>,
}

#[derive(Subcommand)]
pub enum Lab {
    /// 10,000 inserts with a sequence on one instance and on two: NOCACHE ORDER against CACHE 20
    /// (myth 5 of "RAC performance myths")
    SequenceCache(SequenceCacheArgs),
    /// Two batches with different keys over the same blocks, on one instance, on two, and parted
    /// (myth 4 of "RAC performance myths")
    BatchIsolation(BatchIsolationArgs),
    /// Threads that only compute beside an instance whose blocks another one reads (myth 1)
    LmsStarvation(LmsStarvationArgs),
    /// A slow log disk of one instance, and how copies and blocks arrive on another (myth 2)
    SlowLog(SlowLogArgs),
    /// Look-ups in a table of 10,000 rows, without an index and with one (myth 5, the second)
    SmallTableIndex(SmallTableIndexArgs),
    /// A parallel load, and the queries that find a latch of the dictionary cache
    RowCache(RowCacheArgs),
    /// Three hundred sessions leave at once
    LogoutStorm(LogoutStormArgs),
    /// A line of 30 ms with small kernel buffers, and what braid net-check says of it
    NetCheck(NetCheckLabArgs),
    /// All of these, one after the other
    All(AllArgs),
}

#[derive(Args)]
pub struct LabArgs {
    /// Directory for the lab's databases, which are removed at the end [default: a new one among
    /// the temporary files]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// First of three ports in a row for the lab's instances [default: free ones]
    #[arg(long, value_parser = number(0..=u16::MAX))]
    pub port: Option<u16>,
    /// How often everything is measured; medians are printed
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number(1u32..=100))]
    pub rounds: u32,
    /// Memory for buffered blocks of each instance
    #[arg(long, value_name = "SIZE", default_value = "256MB")]
    pub buffer_cache: String,
    /// Leave the databases behind, stopped
    #[arg(long)]
    pub keep: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct SequenceCacheArgs {
    #[command(flatten)]
    pub common: LabArgs,
    /// Rows inserted
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = number(2u32..=10_000_000))]
    pub rows: u32,
    /// Rows in a transaction
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = number(1..=u32::MAX))]
    pub commit_every: u32,
}

#[derive(Args)]
pub struct BatchIsolationArgs {
    #[command(flatten)]
    pub common: LabArgs,
    /// Lines in the interface table, half of them of each organization
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = number(2u32..=100_000_000))]
    pub lines: u32,
    /// Threads of each batch
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number(1u32..=100))]
    pub threads: u32,
}

#[derive(Args)]
pub struct LmsStarvationArgs {
    #[command(flatten)]
    pub common: LabArgs,
    /// Reads of each setting
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = number(50u32..=1_000_000))]
    pub reads: u32,
    /// Numbers of LMS that are tried, from 1
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = number(1u32..=8))]
    pub lms: u32,
    /// Threads that compute, on each processor of instance 2
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = number(1u32..=64))]
    pub hogs: u32,
}

#[derive(Args)]
pub struct SlowLogArgs {
    #[command(flatten)]
    pub common: LabArgs,
    /// Reads on instance 1
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = number(20u32..=1_000_000))]
    pub reads: u32,
    /// Rows of the table
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = number(10u32..=1_000_000))]
    pub rows: u32,
    /// Milliseconds added to each write of the log of instance 2
    #[arg(long, value_name = "MS", default_value_t = 50, value_parser = number(1u32..=1000))]
    pub delay_ms: u32,
}

#[derive(Args)]
pub struct SmallTableIndexArgs {
    #[command(flatten)]
    pub common: LabArgs,
    /// Look-ups with the index
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = number(100u32..=100_000_000))]
    pub lookups: u32,
    /// How many times fewer there are without it
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = number(1u32..=1000))]
    pub fewer: u32,
}

#[derive(Args)]
pub struct RowCacheArgs {
    #[command(flatten)]
    pub common: LabArgs,
    /// Slaves of the load on each instance
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = number(1u32..=200))]
    pub slaves: u32,
    /// Rows that each slave inserts, a transaction for each
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = number(1u32..=10_000_000))]
    pub rows: u32,
}

#[derive(Args)]
pub struct LogoutStormArgs {
    #[command(flatten)]
    pub common: LabArgs,
    /// Sessions that leave
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = number(1u32..=1000))]
    pub sessions: u32,
}

#[derive(Args)]
pub struct NetCheckLabArgs {
    #[command(flatten)]
    pub common: LabArgs,
    /// Round trip of the line, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 30, value_parser = number(1u32..=1000))]
    pub round_trip_ms: u32,
}

#[derive(Args)]
pub struct AllArgs {
    #[command(flatten)]
    pub common: LabArgs,
    /// Leave a lab out
    #[arg(long, value_name = "NAME")]
    pub without: Vec<String>,
}

pub const NET_CHECK_EXAMPLES: &str = "\
Examples:
  braid net-check --data /db
  braid net-check --to 10.1.0.2:5502 --user ann --bandwidth 10000

Exit code 1 if a setting of the kernel keeps a connection from carrying as much as is wanted.";

#[derive(Args)]
pub struct NetCheckArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// An instance by its address, HOST:PORT [default: the open ones of the database]
    #[arg(long, value_name = "ADDRESS")]
    pub to: Option<String>,
    /// Role to connect as [default: this user]
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Mbit/s that one connection is to carry
    #[arg(long, value_name = "MBIT", default_value_t = 1000, value_parser = number(1u32..=1_000_000))]
    pub bandwidth: u32,
}
