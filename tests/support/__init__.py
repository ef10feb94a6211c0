"""What the tests share: workspaces with daemons, fake systems, servers, models, and real programs."""
