"""neaptide breaks Kafka-style replicated logs on purpose and proves what was lost.

The six packages stand at the top of the repository; here are links to them, so that what is
imported and shipped has one name of its own (`neaptide.checkers`, …) and never meets a package
`results` or `harness` of somebody else's.
"""
