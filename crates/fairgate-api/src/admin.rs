//! The admin API: the directory, budgets, pools, requests and the ledger.

mod attempt;
mod audit;
mod budget;
mod calibration;
mod checked_text;
mod declared;
mod export;
mod flow_now;
mod key;
mod limits;
mod live;
mod me;
mod money;
mod pool;
mod price;
mod reload;
mod request;
mod schema_names;
mod tenant;
mod usage;
mod worker;

pub use attempt::{AttemptBody, AttemptList, SearchStopBody};
pub use audit::{AuditBody, AuditPage};
pub use budget::{BudgetBody, BudgetList, HostedBody};
pub use calibration::{
    CalibrationBody, NearestTokenWeightsBody, PredictedWindowBody, TenantSwitchBody,
    TenantWorkBody, TypicalRequestBody, UnitSwitchBody, WorkerCalibrationBody, WorkerPricesBody,
};
pub use checked_text::AsciiName;
pub use declared::DeclaredInBody;
pub use export::{ExportCheckBody, ExportDayBody, ExportSumsBody};
pub use flow_now::{FlowCondition, FlowNow, LastRefusal};
pub use key::{KeyBody, KeyPage, KeyWithSecret};
pub use limits::{GroupLimits, HostedLimits, HostedUseBody, LimitsBody};
pub use live::{
    ClassView, GroupView, LedgerView, LiveView, PoolView, ServiceView, TenantView, TierUseView,
    TiersView,
};
pub use me::{LimitsLeftBody, MeBody, MyPoolBody};
pub use money::{MoneyLimitText, MoneyText};
pub use pool::{
    ChangedCapBody, ChangedWeightBody, CountsBody, FlowAttribute, FlowBody, FlowCapBody,
    FlowRefBody, FlowWeightBody, HeldFlowBody, JournalBody, PoolBody, PoolList,
};
pub use price::{PriceBody, PriceList};
pub use reload::{CheckedConfigBody, ReloadedBody};
pub use request::{
    AheadBody, LevelBody, RequestBody, RequestDetail, RequestList, RequestState, WaitingBody,
};
pub use schema_names::{ClassNameSchema, ModelNameSchema, TaintNameSchema, WorkerNameSchema};
pub use tenant::{GroupBody, GroupPage, TenantBody, TenantPage};
pub use usage::{USAGE_ATTRIBUTES, UsageReportBody, UsageRowBody};
pub use worker::{
    CacheBody, CacheSizeBody, EngineBody, ModelQuotaBody, NewWorker, OverloadBody, QuotaBody,
    WorkerBody, WorkerList, WorkerPatch,
};
