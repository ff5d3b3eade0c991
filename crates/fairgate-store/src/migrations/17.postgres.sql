-- Open tasks that an agent cannot work on, because their folder is not on its machine. They are not given to it again.
CREATE TABLE fleet_unfit (
    agent TEXT NOT NULL,
    task  TEXT NOT NULL,
    PRIMARY KEY (agent, task)
);
