//! The PostgreSQL server that both sides of a comparison work on.

use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool, Row as _};

use crate::Result;
use crate::machine::Pid;
use crate::serve::Place;

/// A connection for preparing tables and asking the server about itself.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    pub(crate) url: String,
    pool: PgPool,
    /// The server's first process, if it is one of this machine.
    pub(crate) postmaster: Option<Pid>,
}

impl Database {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let pool = PgPoolOptions::new().max_connections(1).connect(url).await?;
        let backend: i32 = sqlx::query("select pg_backend_pid()")
            .fetch_one(&pool)
            .await?
            .try_get(0)?;
        let backend = Pid(u32::try_from(backend)?);
        let postmaster = if backend.is_named("postgres") {
            backend.parent().ok()
        } else {
            None
        };
        Ok(Self {
            url: url.to_owned(),
            pool,
            postmaster,
        })
    }

    /// The version and the settings that decide what a commit costs.
    pub(crate) async fn describe(&self) -> Result<String> {
        let row = sqlx::query(
            "select string_agg(name || ' = ' || current_setting(name), ', ' order by place)
             from unnest(array['server_version', 'fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers',
                               'max_connections'])
                  with ordinality as settings (name, place)",
        );
        Ok(row.fetch_one(&self.pool).await?.try_get(0)?)
    }

    /// An empty schema.
    pub(crate) async fn fresh(&self, name: &str) -> Result<Place> {
        let schema = format!("bench_{name}");
        self.execute(format!("drop schema if exists {schema} cascade")).await?;
        self.execute(format!("create schema {schema}")).await?;
        Ok(Place {
            url: self.url.clone(),
            schema,
        })
    }

    pub(crate) async fn drop(&self, place: &Place) -> Result<()> {
        self.execute(format!("drop schema {} cascade", place.schema)).await?;
        Ok(())
    }

    /// An empty database of the same server, for programs that choose their schema themselves.
    pub(crate) async fn fresh_database(&self, name: &str) -> Result<Self> {
        self.drop_database(name).await?;
        self.execute(format!("create database {name}")).await?;
        // Not by way of our driver's options: it writes down defaults of its own, which other drivers do not take.
        let mut url = reqwest::Url::parse(&self.url)?;
        url.set_path(name);
        Self::connect(url.as_str()).await
    }

    pub(crate) async fn drop_database(&self, name: &str) -> Result<()> {
        self.execute(format!("drop database if exists {name} with (force)"))
            .await?;
        Ok(())
    }

    /// The number that a statement of our own finds.
    pub(crate) async fn count(&self, sql: &'static str) -> Result<u64> {
        let count: i64 = sqlx::query(sql).fetch_one(&self.pool).await?.try_get(0)?;
        Ok(count.try_into()?)
    }

    /// Writes out what earlier work left, so that it does not fall into the next measurement.
    pub(crate) async fn settle(&self) -> Result<()> {
        self.execute("checkpoint".to_owned()).await?;
        Ok(())
    }

    /// Runs a statement put together from names of our own, and says how many rows it touched.
    pub(crate) async fn execute(&self, sql: String) -> Result<u64> {
        Ok(sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&self.pool)
            .await?
            .rows_affected())
    }
}
