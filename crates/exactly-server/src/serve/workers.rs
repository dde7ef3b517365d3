//! The threads that serve clients.
//!
//! Each has a runtime, an accept loop, as many clients as the others, and connections to the upstream of its own, so that a
//! request stays on the core on which it came in: handing it from thread to thread costs more than passing it on.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::Semaphore;
use tokio::time::interval;
use tokio_util::sync::CancellationToken;

use super::accept::Acceptor;
use super::background::TIDY_EVERY;
use super::desk::Desk;
use super::shutdown::Shutdown;
use crate::config::Config;
use crate::gateway::Gateway;

/// Threads that serve until they are told to stop.
pub(super) struct Workers {
    count: u32,
    /// A permit for each that has answered everyone.
    served: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Workers {
    /// Starts a thread for every core.
    pub(super) fn start(
        gateway: &Gateway,
        listener: TcpListener,
        config: &Config,
        shutdown: &Shutdown,
    ) -> io::Result<Self> {
        let count = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let (served, stop) = (Arc::new(Semaphore::new(0)), CancellationToken::new());
        let (listener, places) = (listener.into_std()?, Acceptor::places(config));
        for (number, desk) in Desk::several(count).enumerate() {
            let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
            let acceptor = {
                // A listener belongs to the runtime in which it is made.
                let _inside = runtime.enter();
                Acceptor::new(
                    TcpListener::from_std(listener.try_clone()?)?,
                    Arc::clone(&places),
                    desk,
                    config,
                )
            };
            let gateway = gateway.with_own_lines();
            let (shutdown, served, stop) = (shutdown.clone(), Arc::clone(&served), stop.clone());
            let work = async move {
                let (tidied, mut ticks) = (gateway.clone(), interval(TIDY_EVERY));
                tokio::spawn(async move {
                    loop {
                        ticks.tick().await;
                        tidied.prune();
                    }
                });
                acceptor
                    .serve(move |request| gateway.clone().answer(request), &shutdown)
                    .await;
                served.add_permits(1);
                // Handlers whose clients are gone live on here until they are through.
                stop.cancelled().await;
            };
            thread::Builder::new()
                .name(format!("gateway-{number}"))
                .spawn(move || runtime.block_on(work))?;
        }
        Ok(Self {
            count: u32::try_from(count).unwrap_or(u32::MAX),
            served,
            stop,
        })
    }

    /// Waits until every client has its answer.
    pub(super) async fn served(&self) {
        if let Ok(all) = self.served.acquire_many(self.count).await {
            all.forget();
        }
    }

    /// Ends the threads.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }
}
