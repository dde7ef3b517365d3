//! What the machine says about itself and its processes: CPU time, resident size, and how fast it can make bytes
//! durable.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::Result;

/// How often a second the kernel's tables count CPU time: fixed by its ABI for programs.
const TICKS_PER_SECOND: u64 = 100;
const PAGE_BYTES: u64 = 4096;

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pid(pub(crate) u32);

/// What every table begins with.
#[derive(Debug, Serialize)]
pub(crate) struct Facts {
    cores: usize,
    cpu: String,
    kernel: String,
    load: String,
    fsync_ms: f64,
    pub(crate) postgres: Option<String>,
}

impl Facts {
    pub(crate) fn gather(durable: &Path) -> Result<Self> {
        let cpus = fs::read_to_string("/proc/cpuinfo")?;
        let model = cpus.lines().find_map(|line| line.strip_prefix("model name"));
        Ok(Self {
            cores: std::thread::available_parallelism()?.get(),
            cpu: model.map_or_else(String::new, |model| {
                model.trim_start_matches([' ', '\t', ':']).to_owned()
            }),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            load: fs::read_to_string("/proc/loadavg")?.trim().to_owned(),
            fsync_ms: fsync_latency(durable)?.as_secs_f64() * 1000.0,
            postgres: None,
        })
    }

    pub(crate) fn print(&self) {
        println!("cpu       {} × {}", self.cores, self.cpu);
        println!("kernel    {}", self.kernel);
        println!("load      {}", self.load);
        println!(
            "fsync     {:.2} ms (median of 4 KiB appended and synced)",
            self.fsync_ms
        );
        if let Some(postgres) = &self.postgres {
            println!("postgres  {postgres}");
        }
    }
}

fn fsync_latency(folder: &Path) -> Result<Duration> {
    let mut file = tempfile::tempfile_in(folder)?;
    let mut took = Vec::new();
    for _ in 0..101 {
        let started = Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        took.push(started.elapsed());
    }
    took.sort();
    Ok(took[took.len() / 2])
}

impl Pid {
    pub(crate) fn this() -> Self {
        Self(std::process::id())
    }

    /// User and system time spent so far.
    pub(crate) fn cpu(self) -> Result<Duration> {
        let stat = self.stat()?;
        Ok(ticks(stat.field(14)? + stat.field(15)?))
    }

    /// The same with every child, living or ended.
    pub(crate) fn cpu_with_children(self) -> Result<Duration> {
        let stat = self.stat()?;
        let mut total = ticks(stat.field(14)? + stat.field(15)? + stat.field(16)? + stat.field(17)?);
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).map(Pid) else {
                continue;
            };
            // A child may end while we look; its time is then in its parent's next reading.
            if let Ok(child) = pid.stat()
                && child.field(4)? == u64::from(self.0)
            {
                total += ticks(child.field(14)? + child.field(15)?);
            }
        }
        Ok(total)
    }

    /// The resident size in bytes.
    pub(crate) fn resident(self) -> Result<u64> {
        let statm = fs::read_to_string(format!("/proc/{}/statm", self.0))?;
        let pages: u64 = statm.split(' ').nth(1).ok_or("statm has no resident size")?.parse()?;
        Ok(pages * PAGE_BYTES)
    }

    /// Whether the process exists and runs this program.
    pub(crate) fn is_named(self, program: &str) -> bool {
        fs::read_to_string(format!("/proc/{}/comm", self.0)).is_ok_and(|name| name.trim() == program)
    }

    pub(crate) fn parent(self) -> Result<Self> {
        Ok(Self(u32::try_from(self.stat()?.field(4)?)?))
    }

    fn stat(self) -> Result<Stat> {
        Ok(Stat(fs::read_to_string(format!("/proc/{}/stat", self.0))?))
    }
}

/// A line of `/proc/PID/stat`.
struct Stat(String);

impl Stat {
    /// A field by its number in proc(5), from the fourth on.
    fn field(&self, number: usize) -> Result<u64> {
        // The second field is the program's name, which may hold anything, in parentheses.
        let (_, rest) = self.0.rsplit_once(") ").ok_or("stat has no name")?;
        let field = rest.split(' ').nth(number - 3).ok_or("stat is too short")?;
        Ok(field.parse()?)
    }
}

/// The time that all cores were busy since the machine started.
pub(crate) fn busy() -> Result<Duration> {
    let stat = fs::read_to_string("/proc/stat")?;
    let total = stat.lines().next().ok_or("/proc/stat is empty")?;
    let fields: Vec<u64> = total
        .split_whitespace()
        .skip(1)
        .map_while(|field| field.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq, steal: time stolen by the host is lost to us as well.
    let busy = [0, 1, 2, 5, 6, 7].iter().filter_map(|at| fields.get(*at)).sum();
    Ok(ticks(busy))
}

/// Waits until the cores are nearly idle, or until `patience` ends.
pub(crate) async fn calm(patience: Duration) -> Result<()> {
    const LOOK: Duration = Duration::from_millis(500);
    const BUSY_MAX: f64 = 0.05;
    let deadline = Instant::now() + patience;
    let cores = std::thread::available_parallelism()?.get() as f64;
    while Instant::now() < deadline {
        let (before, since) = (busy()?, Instant::now());
        sleep(LOOK).await;
        let spent = busy()?.saturating_sub(before).as_secs_f64();
        if spent / (since.elapsed().as_secs_f64() * cores) < BUSY_MAX {
            return Ok(());
        }
    }
    Ok(())
}

/// How many files this process, and those it starts, may have open.
pub(crate) fn open_files_max() -> Result<usize> {
    let limits = fs::read_to_string("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line
        .and_then(|line| line.split_whitespace().next())
        .ok_or("no limit of open files")?;
    Ok(soft.parse().unwrap_or(usize::MAX))
}

fn ticks(ticks: u64) -> Duration {
    Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_can_read_itself() {
        let this = Pid::this();
        assert!(this.resident().unwrap() > PAGE_BYTES);
        assert!(this.cpu_with_children().unwrap() >= this.cpu().unwrap());
        assert!(this.parent().unwrap() != this);
        assert!(busy().unwrap() > Duration::ZERO);
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = Stat("7 (a) b) c) S 3 7 7 0".into());
        assert_eq!(stat.field(4).unwrap(), 3);
    }
}
